"""A proposer's members as a controller knows them: what both engines ask of them beside drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foredraft.integration.config import Config
from foredraft.integration.draft_lengths import most_chosen
from foredraft.proposers import Proposer
from foredraft.proposers.auto import AutoProposer
from foredraft.scheduler.speculation import Choice, Member


def named_members(config: Config, proposer: Proposer) -> dict[str, Proposer]:
    """The members of a configuration's proposer by name, in their order."""
    names = proposer.names if isinstance(proposer, AutoProposer) else [config.proposer]
    return dict(zip(names, proposer.members, strict=True))


def members_of(config: Config, proposer: Proposer, step_s: Mapping[str, float]) -> list[Member]:
    """What ``AdaptiveDraftLength`` is built over.

    Args:
        step_s: by name, seconds of one drafting step, as far as they were calibrated.
    """
    return [
        Member(
            name,
            most_chosen(name, config),
            member.num_prospects,
            step_s.get(name, 0.0),
            member.most_unread,
        )
        for name, member in named_members(config, proposer).items()
    ]


def fill_prospects(
    prospects: Sequence[list[int]],
    proposer: Proposer,
    places: Sequence[int],
    request_ids: Sequence[str],
    token_ids: Sequence[Sequence[int]],
) -> None:
    """Write what each member says of the requests at ``places``; a member that raises leaves the later ones.

    Args:
        prospects: [M][B] zeros, see ``DraftBatch.prospects``.
        request_ids, token_ids: [B].
    """
    asked_ids = [request_ids[place] for place in places]
    asked_tokens = [token_ids[place] for place in places]
    for own, member in zip(prospects, proposer.members, strict=True):
        said = member.prospects(asked_ids, asked_tokens)
        for place, prospect in zip(places, said, strict=True):
            own[place] = min(max(int(prospect), 0), member.num_prospects)


def seconds_by_member(proposer: Proposer | None, choice: Choice, seconds: float) -> list[float]:
    """Seconds of a step's drafting, split up where several members share."""
    if not isinstance(proposer, AutoProposer):
        return [seconds]
    # It was not asked where nothing was to be drafted: what it tells is of an earlier step.
    return proposer.seconds if any(choice.lengths) else [0.0] * len(proposer.members)
