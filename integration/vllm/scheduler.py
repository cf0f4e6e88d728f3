"""vLLM's scheduler, with slots reserved for what a drafting model writes ahead."""

from __future__ import annotations

from vllm.v1.core.sched.scheduler import Scheduler


class LookaheadScheduler(Scheduler):  # type: ignore[misc]
    """Every request gets blocks for as many positions behind the scheduled ones as it may draft.

    vLLM reserves none for a ``custom_class`` proposer, and drafting would write into blocks of others.
    """

    @property
    def num_lookahead_tokens(self) -> int:
        """Positions behind the scheduled tokens."""
        num_spec_tokens: int = self.num_spec_tokens
        return num_spec_tokens

    @num_lookahead_tokens.setter
    def num_lookahead_tokens(self, value: int) -> None:
        """vLLM's constructor sets it and counts with it: too early to correct it afterwards."""
