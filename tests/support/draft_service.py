"""A draft server in this process, reached through a channel that loses, delays and dies on command."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from toy_drafts import draft_decoder, draft_forward
from toys import TOY_VOCAB, toy_model

from foredraft.integration.embedded.forward import ForwardPass
from foredraft.integration.embedded.state_store import StateStore
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.proposers.remote import RemoteProposer
from foredraft.proposers.remote_channel import ChannelError
from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, ServerCard, TargetCard
from foredraft.scheduler.draft_server import DraftServer, DraftServerOptions, HostedDraft
from foredraft.scheduler.draft_server.target_states import StandInDecoder, TargetStates


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def hosted_draft(prepared: ForwardPass, num_rows: int = 5, reads_states: bool = False) -> HostedDraft:
    """A toy draft as a server hosts it."""
    decoder: Any = draft_decoder(prepared, num_rows)
    states = None
    if reads_states:
        size = prepared.hidden_size
        states = TargetStates(StateStore(num_rows, 256, size, prepared.dtype, prepared.device))
        decoder = StandInDecoder(decoder, states)
    proposer = DraftModelProposer(decoder, reads_states=reads_states)
    return HostedDraft(proposer, num_rows, 256, TOY_VOCAB, states=states)


class LocalPending:
    """See ``remote_channel.Pending``: whoever asks for the answer makes the server work for it."""

    def __init__(self, channel: LocalChannel, future: Future[Any], fault: str | None) -> None:
        self._channel, self._future, self._fault = channel, future, fault

    def result(self, timeout_s: float) -> Any:
        if self._fault == "lost":
            raise ChannelError("lost on the way")
        if self._fault == "late" and timeout_s > 0:
            self._fault = None
            raise TimeoutError
        while not self._future.done():
            if not self._channel.server.step():
                raise TimeoutError
        try:
            return self._future.result()
        except Exception as error:
            raise ChannelError(str(error)) from error


class LocalChannel:
    """See ``remote_channel.DraftChannel``.

    Args:
        idle: whether the server has time for all its work between two messages, drafting ahead included.

    Attributes:
        server: may be replaced, as when it is started again; ``None`` = it is dead.
        faults: of the next calls of ``draft``, one each: "lost", "late" or ``None``.
        requests, answers: what went over the channel.
    """

    def __init__(self, server: DraftServer, idle: bool = True) -> None:
        self.server: DraftServer | None = server
        self.faults: deque[str | None] = deque()
        self.requests: list[DraftRequest] = []
        self.answers: list[DraftAnswer] = []
        self._idle = idle

    def hello(self, target: TargetCard) -> LocalPending:
        future: Future[ServerCard] = Future()
        if self.server is None:
            return LocalPending(self, future, "lost")
        future.set_result(self.server.hello(target))
        return LocalPending(self, future, None)

    def draft(self, request: DraftRequest) -> LocalPending:
        if self.server is None:
            raise ChannelError("the actor is dead")
        self.requests.append(request)
        while self._idle and self.server.step():
            pass
        future = self.server.submit(request)
        future.add_done_callback(self._note)
        return LocalPending(self, future, self.faults.popleft() if self.faults else None)

    def _note(self, future: Future[DraftAnswer]) -> None:
        if future.exception() is None:
            self.answers.append(future.result())


def card_of(target_id: str = "target", reads_states: bool = False, ahead: Any = "off") -> TargetCard:
    return TargetCard(target_id, TOY_VOCAB, "weights", 64 if reads_states else 0, "float32", ahead)


def local_remote(
    hosted: HostedDraft,
    ahead: Any = "off",
    target_id: str = "target",
    idle: bool = True,
    clock: Callable[[], float] | None = None,
    options: DraftServerOptions | None = None,
) -> tuple[RemoteProposer, LocalChannel]:
    """A proposer attached to a server of its own, which costs no time to wait for."""
    options = options or DraftServerOptions(gather_ms=0.0)
    channel = LocalChannel(DraftServer(hosted, options), idle)
    return attached(channel, card_of(target_id, hosted.states is not None, ahead), clock), channel


def attached(
    channel: LocalChannel, card: TargetCard, clock: Callable[[], float] | None = None
) -> RemoteProposer:
    """A proposer over a channel whose server has said hello."""
    proposer = RemoteProposer(channel, card, deadline_s=5.0, **({} if clock is None else {"clock": clock}))
    assert proposer.attach(1.0).refusal is None
    return proposer


def toy_hosted(reads_states: bool = False, num_rows: int = 5) -> HostedDraft:
    """A draft of the toy target, right about half the time: what a server in another process is to host."""
    draft = draft_forward(toy_model(2), reads_states=reads_states)
    return hosted_draft(draft, num_rows, reads_states)
