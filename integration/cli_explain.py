"""``--explain``: why each number of draft tokens is chosen, on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from foredraft.integration.cli_engine import EngineName
from foredraft.integration.errors import UserError

if TYPE_CHECKING:
    from foredraft.integration.embedded.engine import EmbeddedEngine
    from foredraft.integration.engine import Engine

Explain = Annotated[
    bool, typer.Option("--explain", help="Say on stderr why each number of draft tokens is chosen.")
]


def check_explains(explain: bool, engine_name: EngineName) -> None:
    """Raises UserError: the engine's controller is out of reach."""
    if explain and engine_name != "embedded":
        raise UserError(
            f"--explain: needs --engine embedded (got {engine_name}); set FOREDRAFT_EXPLAIN=1 there"
        )


def explain_decisions(engine: Engine, name: str = "", *, beside_text: bool = False) -> None:
    """Print a line whenever the plan of the engine's controller changes, behind ``name`` if there is one.

    Args:
        beside_text: text is streamed to stdout meanwhile; on the same terminal each line then begins afresh.
    """
    afresh = "\n" if beside_text and sys.stdout.isatty() and sys.stderr.isatty() else ""
    prefix = f"{afresh}explain {name}: " if name else f"{afresh}explain: "
    _embedded(engine).controller.on_change = lambda line: print(prefix + line, file=sys.stderr)


def _embedded(engine: Engine) -> EmbeddedEngine:
    from foredraft.integration.embedded.engine import EmbeddedEngine  # late: it loads torch

    assert isinstance(engine, EmbeddedEngine), "checked with the options"
    return engine


def lengths_summary(any_engine: Engine, name: str = "") -> str:
    """What was chosen in all, and what the last decision promised against what came of them."""
    from foredraft.proposers.auto import AutoProposer  # late: it loads torch
    from foredraft.scheduler.speculation import FixedDraftLength

    engine = _embedded(any_engine)
    metrics = engine.metrics
    prefix = f"explain {name}: " if name else "explain: "
    if not metrics.length_counts:
        return f"{prefix}nothing could be drafted"
    counts = ", ".join(f"{length}: {count}" for length, count in sorted(metrics.length_counts.items()))
    text = f"{prefix}draft tokens chosen (length: times) {counts}; {metrics.num_probes} probes"
    if isinstance(engine.proposer, AutoProposer):
        names = enumerate(engine.proposer.names)
        text += f"; drafts of {', '.join(f'{name}: {metrics.member_counts[place]}' for place, name in names)}"
    if isinstance(engine.controller, FixedDraftLength):
        return f"{text}; the number is fixed"
    if metrics.predicted_tokens_per_s is None:
        return text
    realised = metrics.num_emitted_tokens / metrics.seconds["total"]
    return (
        f"{text}; predicted {metrics.predicted_tokens_per_s:.1f} tokens/s at the end, realised {realised:.1f}"
    )
