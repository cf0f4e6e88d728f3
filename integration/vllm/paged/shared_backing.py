"""What stands behind several proposers that share the requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foredraft.integration.errors import UserError
from foredraft.integration.vllm.paged.backing import Backing
from foredraft.integration.vllm.paged.step import Step
from foredraft.proposers.auto import AutoProposer


class SharedBacking(Backing):
    """The backings of all of them. Each takes up every step, whoever drafts in it.

    Args:
        backings: by the proposer's name, in the order of ``AutoProposer``.

    Raises:
        UserError: several read the target's states, of which a proposer is given one kind.
    """

    def __init__(self, backings: Mapping[str, Backing]) -> None:
        super().__init__()
        self._backings = backings
        reading = {name: one.hidden_states for name, one in backings.items() if one.hidden_states is not None}
        if len(reading) > 1:
            raise UserError(f"proposer: {' and '.join(reading)} both read hidden states; name one of them")
        self.hidden_states = next(iter(reading.values()), None)

    def load(self, target: Any) -> None:
        """See ``Backing``."""
        for one in self._backings.values():
            one.load(target)

    def attach(self, runner: Any) -> None:
        """See ``Backing``."""
        members = {}
        for name, one in self._backings.items():
            one.attach(runner)
            assert one.proposer is not None, "attach makes it"
            members[name] = one.proposer
        self.proposer = AutoProposer(members)

    def warm_up(self) -> None:
        """See ``Backing``."""
        for one in self._backings.values():
            one.warm_up()

    def read(self, step: Step) -> None:
        """See ``Backing``."""
        for one in self._backings.values():
            one.read(step)

    def begin(self, step: Step, places: Mapping[int, int], num_committed: Mapping[int, int]) -> None:
        """See ``Backing``."""
        for one in self._backings.values():
            one.begin(step, places, num_committed)
