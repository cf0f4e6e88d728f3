"""A decision in a line of text, for ``--explain``."""

from __future__ import annotations

from foredraft.scheduler.speculation import Decision

SHOWN_PLACES = 4


def explanation(decision: Decision, step: int, num_requests: int) -> str:
    """Why a step drafts as it does: acceptance, costs, and tokens per second of the lengths in question."""
    plain_s, chosen_s = decision.costs_s
    rates = ", ".join(f"{length}: {rate:.1f}" for length, rate in decision.candidates.items())
    acceptance = " ".join(f"{share:.2f}" for share in decision.acceptance[:SHOWN_PLACES])
    return (
        f"step {step}, batch {num_requests}: draft {decision.num_draft_tokens} ({decision.reason}); "
        f"accepted by place {acceptance}; step {plain_s * 1e3:.2f} ms plain, {chosen_s * 1e3:.2f} ms so; "
        f"predicted tokens/s {rates}"
    )
