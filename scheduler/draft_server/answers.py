"""What a message is answered with."""

from __future__ import annotations

from foredraft.proposers.compact_laws import pack_laws
from foredraft.proposers.remote_messages import DraftAnswer
from foredraft.scheduler.draft_server.intake import Intake


def answer_of(step: int, incarnation: str, intake: Intake) -> DraftAnswer:
    """The answer to a message all of whose wishes are ready."""
    rows = {
        wish.handle: wish.ready.cut(wish.wanted)
        for wish in intake.wishes
        if wish.ready is not None and wish.ready.token_ids
    }
    drawn = {handle: row for handle, row in rows.items() if row.probs is not None}
    width = max((len(row.token_ids) for row in rows.values()), default=0)
    return DraftAnswer(
        step=step,
        incarnation=incarnation,
        num_known=intake.num_known,
        token_ids={handle: tuple(row.token_ids) for handle, row in rows.items()},
        law_handles=tuple(drawn),
        laws=pack_laws(list(drawn.values()), width) if drawn else None,
        turned_away=intake.turned_away,
    )
