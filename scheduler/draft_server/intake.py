"""A message's news, taken into the books: what is known now, and what is to be drafted."""

from __future__ import annotations

from dataclasses import dataclass, field

from foredraft.proposers.compact_laws import DraftedRow
from foredraft.proposers.remote_messages import DraftRequest, RequestUpdate
from foredraft.proposers.state_bytes import from_bytes
from foredraft.scheduler.draft_server.ahead import AheadDrafting
from foredraft.scheduler.draft_server.drafting import observe
from foredraft.scheduler.draft_server.held import Books, Held
from foredraft.scheduler.draft_server.hosted import HostedDraft

FULL_S = 1.0
TOO_LONG_S = 3600.0


@dataclass
class Wish:
    """A request that gets a draft now; ``ready`` if it was drawn ahead."""

    handle: int
    held: Held
    wanted: int
    ready: DraftedRow | None = None


@dataclass
class Intake:
    """What one message brought; ``num_known`` and ``turned_away`` as in ``DraftAnswer``.

    Attributes:
        outcomes: of each assumption that this message settles, whether it came true.
    """

    num_known: dict[int, int] = field(default_factory=dict)
    turned_away: dict[int, float] = field(default_factory=dict)
    wishes: list[Wish] = field(default_factory=list)
    outcomes: list[bool] = field(default_factory=list)


def take_in(
    request: DraftRequest, state_dtype: str, hosted: HostedDraft, books: Books, ahead: AheadDrafting
) -> Intake:
    """Enter a message's news.

    Args:
        state_dtype: of the states that it brings.
    """
    for handle in request.released:
        books.close(request.target_id, handle)
    intake = Intake()
    states, first = None, 0
    if hosted.states is not None and request.states:
        states = from_bytes(request.states, hosted.states.size, state_dtype)
    for update in request.updates:
        start, end = max(update.start - 1, 0), update.start + len(update.token_ids) - 1
        of_update = None if states is None else states[first : first + end - start]
        first += end - start
        held = _held(request.target_id, update, hosted, books, intake)
        if held is None:
            continue
        if of_update is not None and hosted.states is not None:
            hosted.states.write(held.row, start, of_update)
        ready = _follow(held, update, hosted, ahead, intake)
        intake.num_known[update.handle] = len(held.token_ids)
        if update.wanted:
            intake.wishes.append(Wish(update.handle, held, update.wanted, ready))
    return intake


def _held(
    target_id: str, update: RequestUpdate, hosted: HostedDraft, books: Books, intake: Intake
) -> Held | None:
    """The request of an update, if it is known or there is room for it, and no gap before what is new."""
    held = books.find(target_id, update.handle)
    if held is None and (update.start > 0 or update.sampling is None):
        intake.num_known[update.handle] = 0
        return None
    if update.start + len(update.token_ids) > hosted.capacity:
        books.close(target_id, update.handle)
        intake.turned_away[update.handle] = TOO_LONG_S
        return None
    if held is None:
        assert update.sampling is not None, "checked above"
        held = books.open(target_id, update.handle, update.sampling)
        if held is None:
            intake.turned_away[update.handle] = FULL_S
            return None
        if hosted.states is not None:
            hosted.states.clear(held.row)
    if update.start > len(held.token_ids):
        intake.num_known[update.handle] = len(held.token_ids)
        return None
    if update.sampling is not None:
        held.sampling = update.sampling
    return held


def _follow(
    held: Held, update: RequestUpdate, hosted: HostedDraft, ahead: AheadDrafting, intake: Intake
) -> DraftedRow | None:
    """Append what is new, and tell the proposer what became of its draft.

    Returns:
        The draft that was drawn ahead, if its assumption came true.
    """
    new = update.token_ids[len(held.token_ids) - update.start :]
    held.token_ids += new
    if not new or not held.drafted:
        return None
    followed = held.token_ids[held.block_start :]
    work = ahead.take_back(held, followed)
    if work is None or not work.begun:
        right = next(
            (at for at, pair in enumerate(zip(held.drafted, followed, strict=False)) if pair[0] != pair[1]),
            min(len(held.drafted), len(followed)),
        )
        observe(hosted, [held], [followed[:right]])
    held.drafted = []
    if work is None:
        return None
    intake.outcomes.append(work.came_true(followed))
    return work.ready if work.came_true(followed) else None
