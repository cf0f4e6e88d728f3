"""A target's connection to its draft server: one call at a time, and none holds up more than its deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from foredraft.proposers.remote_channel import ChannelError, DraftChannel, Pending
from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, ServerCard, TargetCard

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
GIVE_UP_S = 10.0
"""A call without an answer for so long is taken for lost."""


@dataclass
class LinkCounts:
    """What became of the calls. ``seconds_waiting`` is what steps spent on them."""

    num_asked: int = 0
    num_answered: int = 0
    num_late: int = 0
    num_lost: int = 0
    num_busy: int = 0
    num_attached: int = 0
    seconds_waiting: float = 0.0


class Link:
    """Attaches, asks, and after a failure attaches again, with pauses that grow.

    Args:
        deadline_s: how long a step waits for its draft; fixed, so that it cannot depend on what is drawn.
    """

    def __init__(
        self,
        channel: DraftChannel,
        card: TargetCard,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = LinkCounts()
        self.incarnation: str | None = None
        self.deadline_s = deadline_s
        self._channel, self._card, self._clock = channel, card, clock
        self._hello: Pending[ServerCard] | None = None
        self._late: Pending[DraftAnswer] | None = None
        self._since = 0.0  # when the call under way began
        self._pause_s = FIRST_PAUSE_S
        self._paused_until = -1.0
        self._logged: set[str] = set()

    @property
    def is_open(self) -> bool:
        """Whether ``ask`` may be called now."""
        free = self._hello is None and self._late is None
        return self.incarnation is not None and free and self._clock() >= self._paused_until

    def attach(self, timeout_s: float) -> ServerCard:
        """Wait for the server at the start, when there are no steps to hold up.

        Raises:
            TimeoutError, ChannelError: it is not there.
        """
        return self._attached(self._channel.hello(self._card).result(timeout_s))

    def settle(self) -> DraftAnswer | None:
        """See to what is under way, without waiting.

        Returns:
            The answer to an earlier step. Its drafts are stale: it only tells what the server holds.
        """
        if self._late is not None:
            answer = self._collect(self._late, 0.0)
            if answer is None and self._clock() - self._since > GIVE_UP_S:
                self._lose(f"no answer within {GIVE_UP_S:.0f} s")
            return answer
        if self.incarnation is None:
            self._try_to_attach()
        return None

    def ask(self, request: DraftRequest, wait: bool = True) -> DraftAnswer | None:
        """The answer to ``request``, or ``None``: it is late, lost, or the server is busy.

        Args:
            wait: ``False`` leaves the answer to a later ``settle``.
        """
        began = self._since = self._clock()
        self.counts.num_asked += 1
        try:
            self._late = self._channel.draft(request)
        except ChannelError as error:
            self._lose(str(error))
            return None
        if not wait:
            return None
        answer = self._collect(self._late, self.deadline_s)
        self.counts.seconds_waiting += self._clock() - began
        if self._late is not None:
            self.counts.num_late += 1
            self._pause(f"no draft within {1000 * self.deadline_s:.0f} ms, steps go on without")
        elif answer is not None:
            self._pause_s = FIRST_PAUSE_S
        return answer

    def _collect(self, pending: Pending[DraftAnswer], timeout_s: float) -> DraftAnswer | None:
        try:
            answer = pending.result(timeout_s)
        except TimeoutError:
            return None
        except ChannelError as error:
            self._lose(str(error))
            return None
        self._late = None
        if answer.incarnation != self.incarnation:
            self._lose("another server has taken its name")
            return None
        if answer.busy:
            self.counts.num_busy += 1
            self._pause("the draft server is busy, steps go on without")
            return None
        self.counts.num_answered += 1
        return answer

    def _try_to_attach(self) -> None:
        try:
            if self._hello is None:
                if self._clock() >= self._paused_until:
                    self._since, self._hello = self._clock(), self._channel.hello(self._card)
                return
            self._attached(self._hello.result(0.0))
        except TimeoutError:
            if self._clock() - self._since > GIVE_UP_S:
                self._lose(f"no answer within {GIVE_UP_S:.0f} s")
        except ChannelError as error:
            self._lose(str(error))

    def _attached(self, card: ServerCard) -> ServerCard:
        self._hello = None
        if card.refusal is not None:
            self._lose(card.refusal)
            return card
        self.incarnation = card.incarnation
        self.counts.num_attached += 1
        self._pause_s = FIRST_PAUSE_S
        self._logged.clear()
        logger.info("draft server: attached to %s", card.incarnation)
        return card

    def _lose(self, reason: str) -> None:
        """Nothing of the server is known any more; whatever is under way is forgotten."""
        self.incarnation = self._hello = self._late = None
        self.counts.num_lost += 1
        self._pause(f"lost, steps go on without drafts: {reason}")

    def _pause(self, reason: str) -> None:
        kind = reason.partition(",")[0]
        if kind not in self._logged:
            self._logged.add(kind)
            logger.warning("draft server: %s (logged once)", reason)
        self._paused_until = self._clock() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
