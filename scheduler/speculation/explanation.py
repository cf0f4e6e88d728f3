"""A decision in a line of text, for ``--explain``."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.scheduler.speculation.contract import Decision
from foredraft.scheduler.speculation.length_search import Plan
from foredraft.scheduler.speculation.members import Member

SHOWN_PLACES = 4


def explanation(decision: Decision, plan: Plan, members: Sequence[Member]) -> str:
    """Why a step drafts as it does: acceptance, costs, and tokens per second of what it could do."""
    chosen = " + ".join(
        f"{member.name} {depth}" for member, depth in zip(members, plan.depths, strict=True) if depth
    )
    accepted = "; ".join(
        f"{name} {' '.join(f'{share:.2f}' for share in shares[:SHOWN_PLACES])}"
        for name, shares in decision.acceptance.items()
    )
    rates = ", ".join(f"{name}: {rate:.1f}" for name, rate in _best_of_each(decision, members).items())
    return (
        f"draft {chosen or 'nothing'} ({decision.reason}); accepted by place: {accepted}; "
        f"plain step {decision.plain_step_s * 1e3:.2f} ms; "
        f"predicted tokens/s {decision.predicted_tokens_per_s:.1f}; each alone: {rates}"
    )


def _best_of_each(decision: Decision, members: Sequence[Member]) -> dict[str, float]:
    """Of each member the length that is fastest, with its tokens per second."""
    best: dict[str, float] = {}
    for member in members:
        own = {name: rate for name, rate in decision.candidates.items() if name.split()[0] == member.name}
        fastest = max(own, key=lambda name: own[name])
        best[fastest] = own[fastest]
    return best


def arm_names(members: Sequence[Member]) -> list[str]:
    """A name for each arm but arm 0 (see ``members.Arms``): the member's, and what it says of a request."""
    return [
        member.name if member.num_prospects == 1 else f"{member.name}/{prospect}"
        for member in members
        for prospect in range(1, member.num_prospects + 1)
    ]
