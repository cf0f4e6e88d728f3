"""The names under which what an engine counts is shown to Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from foredraft.integration.metrics import EngineMetrics

COUNTERS = {
    "foredraft_steps": "Steps of the engine that yielded tokens.",
    "foredraft_drafted_tokens": "Tokens drafted.",
    "foredraft_accepted_tokens": "Drafted tokens that were kept.",
    "foredraft_emitted_tokens": "Tokens delivered, accepted drafts included.",
    "foredraft_proposer_faults": "Calls in which the proposer failed; its drafts were left out.",
    "foredraft_proposer_seconds": "Time spent drafting.",
    "foredraft_verifier_seconds": "Time from logits to tokens, drafts verified.",
    "foredraft_probes": "Drafts beyond the plan, to learn.",
    "foredraft_length_counts": "Times that a request that could draft was given each length.",
    "foredraft_member_counts": "Drafts by the proposer that made them.",
    "foredraft_verified_per_position": "Drafted tokens that were verified, by their place in the draft.",
    "foredraft_accepted_per_position": "Drafted tokens that were kept, by their place in the draft.",
}
"""Name, without the ``_total`` that each ends in, and help text."""

LABELS = {
    "foredraft_length_counts": "length",
    "foredraft_member_counts": "member",
    "foredraft_verified_per_position": "position",
    "foredraft_accepted_per_position": "position",
}
"""The label that a counter has of its own."""

PREDICTED = "foredraft_predicted_tokens_per_s"
PREDICTED_HELP = "Tokens per second that the last plan promises for the batch, by all that was measured."


def counter_values(metrics: EngineMetrics) -> Iterator[tuple[str, str | None, float]]:
    """Name, its own label's value (``None`` = it has none), value. Positions in a draft count from 0."""
    yield "foredraft_steps", None, metrics.num_steps
    yield "foredraft_drafted_tokens", None, metrics.num_drafted_tokens
    yield "foredraft_accepted_tokens", None, metrics.num_accepted_tokens
    yield "foredraft_emitted_tokens", None, metrics.num_emitted_tokens
    yield "foredraft_proposer_faults", None, metrics.num_proposer_faults
    yield "foredraft_proposer_seconds", None, metrics.seconds["propose"]
    yield "foredraft_verifier_seconds", None, metrics.seconds["sample"]
    yield "foredraft_probes", None, metrics.num_probes
    for length, count in metrics.length_counts.items():
        yield "foredraft_length_counts", str(length), count
    for place, name in enumerate(metrics.member_names):
        yield "foredraft_member_counts", name, metrics.member_counts[place]
    pairs = zip(metrics.verified_per_position, metrics.accepted_per_position, strict=True)
    for position, (verified, accepted) in enumerate(pairs):
        yield "foredraft_verified_per_position", str(position), verified
        yield "foredraft_accepted_per_position", str(position), accepted
