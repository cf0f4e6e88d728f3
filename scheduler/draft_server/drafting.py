"""The hosted proposer, called for requests of any targets at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foredraft.proposers import DraftContext, Outcome
from foredraft.proposers.compact_laws import DraftedRow, law_of_row
from foredraft.proposers.remote_sampling import sampling_batch
from foredraft.scheduler.draft_server.held import Held
from foredraft.scheduler.draft_server.hosted import HostedDraft, Rewinds
from foredraft.verifier import MIN_TEMPERATURE, Draft


def draft_rows(
    hosted: HostedDraft,
    requests: Sequence[Held],
    wanted: Sequence[int],
    assumed: Sequence[Sequence[int]] | None = None,
    greedy: bool = False,
) -> list[DraftedRow]:
    """One draft of each request, after its committed tokens.

    Args:
        assumed: tokens that count as committed after them.
        greedy: the likeliest tokens, whatever the requests' sampling: nothing is drawn.
    """
    tokens = [held.token_ids for held in requests]
    if assumed is not None:
        tokens = [[*own, *more] for own, more in zip(tokens, assumed, strict=True)]
    each = [replace(held.sampling, temperature=0.0) if greedy else held.sampling for held in requests]
    context = DraftContext(
        request_ids=[held.request_id for held in requests],
        token_ids=tokens,
        max_draft_tokens=wanted,
        sampling=sampling_batch(each, [len(one) for one in tokens]),
        cache_rows=[held.row for held in requests],
        hidden_states=hosted.states,
    )
    drawn = [one.temperature >= MIN_TEMPERATURE for one in each]
    return _rows(hosted.proposer.propose(context), wanted, drawn)


def observe(hosted: HostedDraft, requests: Sequence[Held], accepted: Sequence[Sequence[int]]) -> None:
    """Tell the proposer of each request what followed its last draft's beginning, all of it accepted."""
    outcomes = [
        Outcome(
            held.request_id,
            held.block_start,
            len(held.drafted),
            len(held.drafted),
            len(tokens),
            tuple(tokens),
        )
        for held, tokens in zip(requests, accepted, strict=True)
    ]
    hosted.proposer.observe(outcomes)


def rewind(hosted: HostedDraft, held: Held, num_tokens: int) -> None:
    """Only the first ``num_tokens`` of a request were what the proposer took them for."""
    assert isinstance(hosted.proposer, Rewinds), "else nothing is assumed"
    hosted.proposer.rewind(held.request_id, num_tokens)


def _rows(draft: Draft, wanted: Sequence[int], drawn: Sequence[bool]) -> list[DraftedRow]:
    """The rows of a draft, cut to what was wanted; of greedy ones the laws mean nothing."""
    tokens: list[list[int]] = draft.token_ids.tolist()
    lengths = [min(length, most) for length, most in zip(draft.lengths.tolist(), wanted, strict=True)]
    rows = [DraftedRow(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    for entry, row in enumerate([] if draft.probs is None else draft.probs.rows.tolist()):
        if drawn[row] and lengths[row]:
            assert draft.probs is not None, "it has entries"
            rows[row] = DraftedRow(rows[row].token_ids, *law_of_row(draft.probs, entry, lengths[row]))
    return rows
