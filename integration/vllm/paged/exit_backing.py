"""What stands behind a proposer that drafts on the target's own rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from foredraft.integration.vllm.paged.backing import Backing
from foredraft.integration.vllm.paged.decoder import Body, PagedDecoder
from foredraft.integration.vllm.paged.own_exit import OwnExit
from foredraft.integration.vllm.paged.step import Step
from foredraft.integration.vllm.paged.warm_up import warm_up
from foredraft.proposers import create_proposer


class ExitBacking(Backing, ABC):
    """A part of the target drafts, and finds read what the target has read.

    Args:
        vllm_config: vLLM's.
        min_confidence: as for ``EarlyExitProposer``.
    """

    def __init__(self, vllm_config: Any, min_confidence: float) -> None:
        super().__init__()
        self.vllm_config = vllm_config
        self._min_confidence = min_confidence
        self._body: Body | None = None
        self._decoder: PagedDecoder | None = None

    @abstractmethod
    def make_body(self, target: Any) -> Body:
        """What drafts; ``target`` is vLLM's whole model."""

    def head_options(self) -> dict[str, Any]:
        """What the proposer is to know of the head, once the body is made."""
        return {}

    def load(self, target: Any) -> None:
        """See ``Backing``."""
        self._body = self.make_body(target)

    def attach(self, runner: Any) -> None:
        """See ``Backing``."""
        assert self._body is not None, "load goes before"
        self._decoder = PagedDecoder(self._body, runner)
        options = {"decoder": self._decoder, "min_confidence": self._min_confidence}
        self.proposer = create_proposer("early_exit", options | self.head_options())

    def warm_up(self) -> None:
        """See ``Backing``."""
        assert self._body is not None, "load goes before"
        warm_up(self._body, self.vllm_config)

    def begin(self, step: Step, places: Mapping[int, int], num_committed: Mapping[int, int]) -> None:
        """See ``Backing``."""
        assert self._decoder is not None, "attach goes before"
        self._decoder.begin(step, places, {row: count - 1 for row, count in num_committed.items()})


class OwnExitBacking(ExitBacking):
    """The target's first layers with its own norm and head. Nothing is kept beside the target's rows."""

    def __init__(self, exit_layer: int, vllm_config: Any, min_confidence: float) -> None:
        super().__init__(vllm_config, min_confidence)
        self._exit_layer = exit_layer

    def make_body(self, target: Any) -> Body:
        """See ``ExitBacking``."""
        return OwnExit(target, self._exit_layer, self.vllm_config)
