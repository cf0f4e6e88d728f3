"""What a step adds to its sequences: accepted tokens, log-probabilities, outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as List

from torch import Tensor

from foredraft.integration.embedded.batch import ScheduledRow
from foredraft.integration.embedded.logprobs import position_logprobs
from foredraft.integration.embedded.sequence import Request, Sequence
from foredraft.proposers.base import Outcome
from foredraft.verifier import PADDING

NO_TOKEN = (
    "no token is possible here: the controls of this request (allowed_token_ids, bad_words, min_tokens) "
    "forbid all of them, or the model's logits are not numbers"
)


def commit(
    rows: List[ScheduledRow],
    drafted: List[List[int]],
    token_ids: List[List[int]],
    num_accepted: List[int],
    logits: Tensor,
) -> list[Outcome]:
    """Append a verdict to its sequences; those aborted while the step ran are passed over.

    Args:
        rows, drafted, token_ids, num_accepted: of each sampled row, as in the verdict.
        logits: [sum of drafted + 1, V].
    """
    outcomes = []
    first_place = 0
    for row, draft, emitted, accepted in zip(rows, drafted, token_ids, num_accepted, strict=True):
        sequence, places = row.sequence, slice(first_place, first_place + accepted + 1)
        first_place += len(draft) + 1
        if sequence.finished:
            continue
        block_start = len(sequence.token_ids)
        kept = _append(sequence, emitted[: accepted + 1])
        committed = tuple(sequence.token_ids[block_start:])
        if sequence.output.logprobs is not None:
            num_top = sequence.params.logprobs or 0
            sequence.output.logprobs += position_logprobs(logits[places][:kept], list(committed), num_top)
        outcome = Outcome(
            sequence.sequence_id, block_start, len(draft), len(draft), min(accepted, kept), committed
        )
        sequence.output.speculation.add(outcome)
        outcomes.append(outcome)
    return outcomes


def _append(sequence: Sequence, emitted: List[int]) -> int:
    """Commit a verdict's tokens; returns how many were kept."""
    if emitted[-1] != PADDING:
        return sequence.commit(emitted)
    kept = sequence.commit(emitted[:-1])
    if not sequence.finished:
        sequence.finish("error", NO_TOKEN)
    return kept


def note_prompt_logprobs(
    rows: List[ScheduledRow],
    drafts: List[List[int]],
    hidden: Tensor,
    head: Callable[[Tensor], Tensor],
    owners: Mapping[str, Request],
) -> None:
    """Those of the prompt tokens that this pass predicts, where they were asked for.

    Args:
        hidden: [T, H] of all tokens of the pass.
        head: [n, H] -> [n, V] logits.
        owners: requests by sequence id.
    """
    begin = 0
    for row, draft in zip(rows, drafts, strict=True):
        sequence = row.sequence
        wanted = sequence.params.prompt_logprobs if sequence.output.index == 0 else None
        # Position i predicts prompt token i + 1; the last prompt position predicts output.
        end = min(row.start + row.num_new, len(sequence.prompt_ids) - 1)
        if wanted is not None and end > row.start and not sequence.finished:
            logits = head(hidden[begin : begin + end - row.start])
            request = owners[sequence.sequence_id]
            assert request.prompt_logprobs is not None, "asked for at admission"
            request.prompt_logprobs += position_logprobs(
                logits, sequence.prompt_ids[row.start + 1 : end + 1], wanted
            )
        begin += row.num_new + len(draft)
