"""What a proposer gets of vLLM's model, beside token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foredraft.integration.errors import UserError
from foredraft.integration.vllm.paged.states import PagedStates
from foredraft.integration.vllm.paged.step import Step
from foredraft.integration.vllm.support import check_model
from foredraft.proposers import Proposer
from foredraft.proposers.decoder import HiddenStates


class Backing:
    """Nothing: all a proposer needs are token ids.

    Attributes:
        proposer: what drafts; set by ``attach`` at the latest.
        hidden_states: for ``DraftContext.hidden_states``.
    """

    hidden_states: HiddenStates | None = None

    def __init__(self, proposer: Proposer | None = None) -> None:
        self.proposer = proposer

    def load(self, target: Any) -> None:
        """Load what drafts, before vLLM plans its cache; ``target`` is vLLM's model."""

    def attach(self, runner: Any) -> None:
        """Prepare the runner, which has loaded its model but has no cache yet."""

    def warm_up(self) -> None:
        """Compile what is to be compiled; vLLM measures the memory of it."""

    def read(self, step: Step) -> None:
        """Take up what the target has just read."""

    def begin(self, step: Step, places: Mapping[int, int], num_committed: Mapping[int, int]) -> None:
        """The proposer is called next.

        Args:
            places: of each of its rows the row of vLLM's batch.
            num_committed: of each of its rows the committed tokens; the target has read all but the newest.
        """


class StatesBacking(Backing):
    """The target's last hidden states of all committed tokens, for a user's proposer that reads them."""

    def __init__(self, proposer: Proposer, name: str) -> None:
        super().__init__(proposer)
        self._name = name
        self._states = PagedStates(width=1)
        self.hidden_states = self._states

    def attach(self, runner: Any) -> None:
        """See ``Backing``.

        Raises:
            UserError: vLLM does not keep or make the states of every token.
        """
        check_model(self._name, "model", runner.model_config)
        if runner.cache_config.kv_sharing_fast_prefill:
            raise UserError(f"kv_sharing_fast_prefill: does not work with proposer {self._name}")

    def read(self, step: Step) -> None:
        """See ``Backing``."""
        self._states.write(step)

    def begin(self, step: Step, places: Mapping[int, int], num_committed: Mapping[int, int]) -> None:
        """See ``Backing``."""
        self._states.begin(step, places)
