"""Run the blocks: every proposer on the same requests, taking turns, each block checked when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from foredraft.integration.compare.offline.blocks import cut_blocks, rotated
from foredraft.integration.compare.offline.closed_loop import BlockRun, run_block
from foredraft.integration.compare.offline.output_check import Difference, OutputChecker
from foredraft.integration.compare.offline.prompts import CompareRequest
from foredraft.integration.compare.plan import BASELINE, Cell
from foredraft.integration.embedded.engine import EmbeddedEngine

WARM_UP_TOKENS = 8

SEED_EXACT_PROPOSERS = (BASELINE, "ngram")
"""Their drafts are point masses: in float32 the seeded output is the same tokens as without speculation."""


@dataclass(frozen=True)
class MeasuredBlock:
    """A block that every proposer has served.

    Attributes:
        prompt_ids: names of the prompts, one per request.
        runs: per proposer.
        differences: per proposer, in the order of the plan, one entry per request, ``None`` where the output
            equals the baseline's; ``None`` for the proposer where equal tokens are not promised.
    """

    cell: Cell
    prompt_ids: list[str]
    runs: dict[str, BlockRun]
    differences: dict[str, list[Difference | None] | None]


def warm_up(engines: Mapping[str, EmbeddedEngine], request: CompareRequest) -> None:
    """One short request each, so that what happens once per process is not measured."""
    short = request.params.model_copy(update={"max_tokens": WARM_UP_TOKENS, "min_tokens": 0})
    for engine in engines.values():
        run_block(engine, [CompareRequest(request.prompt, short)], batch_size=1)


def measure(
    engines: Mapping[str, EmbeddedEngine],
    requests: Mapping[Cell, Sequence[CompareRequest]],
    checker: OutputChecker,
    advance: Callable[[int], None],
) -> Iterator[MeasuredBlock]:
    """Yield block after block, as they are completed.

    Args:
        engines: one per proposer, the baseline among them.
        checker: for the outputs, over the baseline's decoder.
        advance: told how many requests have been served since the last call; called between runs only, so
            that showing progress costs no measured time.
    """
    block_number = 0
    for cell, cell_requests in requests.items():
        for block in cut_blocks(cell_requests, cell.batch_size):
            runs = {}
            for name in rotated(list(engines), block_number):
                runs[name] = run_block(engines[name], block, cell.batch_size)
                advance(len(block))
            block_number += 1
            yield MeasuredBlock(
                cell,
                [request.prompt.prompt_id for request in block],
                runs,
                {name: _differences(name, cell, block, runs, checker) for name in engines},
            )


def promises_equal_tokens(proposer: str, temperature: float, dtype: torch.dtype) -> bool:
    """Whether a proposer must give the baseline's tokens, up to rounding."""
    return temperature == 0 or (dtype == torch.float32 and proposer in SEED_EXACT_PROPOSERS)


def _differences(
    name: str,
    cell: Cell,
    block: Sequence[CompareRequest],
    runs: Mapping[str, BlockRun],
    checker: OutputChecker,
) -> list[Difference | None] | None:
    if not promises_equal_tokens(name, cell.temperature, checker.dtype):
        return None
    triples = zip(block, runs[BASELINE].outputs, runs[name].outputs, strict=True)
    return [checker.compare(request.prompt.token_ids, expected, own) for request, expected, own in triples]
