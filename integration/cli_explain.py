"""``--explain``: why each number of draft tokens is chosen, on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foredraft.integration.embedded.engine import EmbeddedEngine


def explain_decisions(engine: EmbeddedEngine, name: str = "") -> None:
    """Print a line whenever the plan of the engine's controller changes, behind ``name`` if there is one."""
    prefix = f"explain {name}: " if name else "explain: "
    engine.controller.on_change = lambda line: print(prefix + line, file=sys.stderr)


def lengths_summary(engine: EmbeddedEngine, name: str = "") -> str:
    """What was chosen in all, and what the last decision promised against what came of them."""
    from foredraft.proposers.auto import AutoProposer  # late: it loads torch

    metrics = engine.metrics
    prefix = f"explain {name}: " if name else "explain: "
    if not metrics.length_counts:
        return f"{prefix}nothing could be drafted"
    counts = ", ".join(f"{length}: {count}" for length, count in sorted(metrics.length_counts.items()))
    text = f"{prefix}draft tokens chosen (length: times) {counts}; {metrics.num_probes} probes"
    if isinstance(engine.proposer, AutoProposer):
        names = enumerate(engine.proposer.names)
        text += f"; drafts of {', '.join(f'{name}: {metrics.member_counts[place]}' for place, name in names)}"
    if metrics.predicted_tokens_per_s is None:
        return f"{text}; the number is fixed"
    realised = metrics.num_emitted_tokens / metrics.seconds["total"]
    return (
        f"{text}; predicted {metrics.predicted_tokens_per_s:.1f} tokens/s at the end, realised {realised:.1f}"
    )
