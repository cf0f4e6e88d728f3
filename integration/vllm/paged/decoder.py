"""A model over vLLM's paged cache, as a decoder that drafts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from foredraft.integration.row_lengths import RowLengths
from foredraft.integration.vllm.paged.passes import PagedPasses
from foredraft.integration.vllm.paged.step import Step
from foredraft.proposers.decoder import Tokens


class Body(Protocol):
    """What a decoder runs.

    Attributes:
        layer_names: of the attention layers it goes through, as vLLM's cache knows them.
        max_len: longest sequence it can take.
        vocab_size: it reads token ids below this.
    """

    layer_names: list[str]
    max_len: int
    vocab_size: int

    def run(self, input_ids: Tensor, positions: Tensor, states: Tensor | None) -> Tensor:
        """[T], [T] -> [T, H], in vLLM's forward context; ``states`` [T, H] as in ``DraftDecoder.forward``."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S]."""
        ...


class PagedDecoder:
    """See ``proposers.decoder.DraftDecoder``. Its rows are numbers that requests keep while they run.

    Args:
        runner: vLLM's model runner; its cache may come later.
    """

    def __init__(self, body: Body, runner: Any) -> None:
        self._body = body
        self._passes = PagedPasses(runner, body.layer_names)
        self.num_rows: int = runner.scheduler_config.max_num_seqs
        self.capacity: int = runner.max_model_len
        self.max_len = body.max_len
        self.vocab_size = body.vocab_size
        self.device: torch.device = runner.device
        self._rows = RowLengths(self.num_rows, self.capacity)

    def begin(self, step: Step, places: Mapping[int, int], lengths: Mapping[int, int]) -> None:
        """Go on behind ``step``.

        Args:
            places: of each row that may be read or written now its row of vLLM's batch.
            lengths: valid positions of rows that others have written; the decoder knows its own.
        """
        self._passes.begin(step, places)
        for row, length in lengths.items():
            self._rows.lengths[row] = length

    @torch.inference_mode()
    def forward(self, tokens: Tokens, *, states: Tensor | None = None) -> Tensor:
        """Read ragged tokens, writing keys and values into the rows' blocks; [T, H]."""
        self._rows.reserve(tokens.row_ids, tokens.starts, tokens.query_lens)
        one = self._passes.of(tokens)
        with self._passes.running(one.common()):
            return self._body.run(tokens.token_ids, one.positions, states)

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S]."""
        return self._body.logits(hidden)

    def valid_len(self, row: int) -> int:
        """Valid leading positions of a row."""
        return self._rows.lengths[row]

    def truncate(self, row: int, length: int) -> None:
        """Roll a row back."""
        self._rows.truncate(row, length)
