"""How a target reaches a draft server. What carries the messages is somebody else's: Ray's, or a test's."""

from __future__ import annotations

from typing import Protocol, TypeVar

from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, ServerCard, TargetCard

Answer = TypeVar("Answer", covariant=True)


class ChannelError(Exception):
    """The other side cannot be reached, or failed; what was asked is lost."""


class Pending(Protocol[Answer]):
    """A call under way."""

    def result(self, timeout_s: float) -> Answer:
        """Its answer.

        Raises:
            TimeoutError: not yet there.
            ChannelError: it will not come.
        """
        ...


class DraftChannel(Protocol):
    """Calls to one draft server, by name: whoever bears it now. None of these waits for the other side."""

    def hello(self, target: TargetCard) -> Pending[ServerCard]:
        """Find the server and ask whether it drafts for this target."""
        ...

    def draft(self, request: DraftRequest) -> Pending[DraftAnswer]:
        """Send a step's message to the server that ``hello`` found."""
        ...
