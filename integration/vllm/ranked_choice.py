"""One choice of draft lengths for all ranks that share a model."""

from __future__ import annotations

from typing import Any

from foredraft.scheduler.speculation import Choice


class RankedChoice:
    """What the first rank chose, on every rank.

    vLLM's executor of processes logs an exception of any rank but the first and goes on: such a rank may have
    missed a choice. Passes are numbered, so that it does not take an old one for the present. Its queue holds
    six: the first rank waits for one that misses more in a row.

    Args:
        ranks: vLLM's ``GroupCoordinator`` of those that share the model; its first rank is the sender.
    """

    def __init__(self, ranks: Any) -> None:
        self._ranks = ranks
        self._pass = 0

    def pass_begins(self) -> None:
        """The target is about to run, on every rank."""
        self._pass += 1

    def agreed(self, choice: Choice | None) -> Choice:
        """The first rank's choice for this pass.

        Args:
            choice: on the first rank, its own.

        Raises:
            RuntimeError: a choice for a later pass; this rank has lost count.
        """
        number, agreed = self._ranks.broadcast_object((self._pass, choice))
        while number < self._pass:
            number, agreed = self._ranks.broadcast_object(None)
        if number > self._pass:
            behind, self._pass = self._pass, number
            raise RuntimeError(f"draft lengths for pass {number} reached a rank in pass {behind}")
        assert agreed is not None, "the first rank has one"
        return agreed  # type: ignore[no-any-return]
