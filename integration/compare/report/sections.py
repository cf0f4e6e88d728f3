"""The plots of the report: which rows go into which picture. Each list begins with its legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from foredraft.integration.compare.report.charts import (
    Bar,
    IntervalMark,
    Line,
    bar_chart,
    interval_chart,
    legend,
    line_chart,
)
from foredraft.integration.compare.report.markup import Markup, element
from foredraft.integration.compare.results.base import CellRow, ComparedRow, ManyWorkloadsRow
from foredraft.integration.compare.results.model import ResultRow

Row = TypeVar("Row", bound=CellRow)
PHASES = ("propose", "forward", "sample", "rest")
VERDICT_SIGNS = {
    "faster": "▲",
    "slower": "▼",
    "no difference shown": "≈",
    "too few blocks": "?",
    "output differs": "✗ wrong,",
}


def overall_cards(overall: Sequence[ManyWorkloadsRow], names: Sequence[str]) -> list[Markup]:
    """Per load and temperature, over all workloads.

    Args:
        names: of what is compared with the baseline; so it is for all of these.
    """
    cards = []
    for conditions in dict.fromkeys(row.conditions for row in overall):
        rows = [row for row in overall if row.conditions == conditions]
        cards.append(_card(", ".join(conditions), interval_chart(_marks(rows, names))))
    return [legend(names), *cards] if cards else []


def speedup_cards(results: Sequence[CellRow], names: Sequence[str]) -> list[Markup]:
    """Per cell in which something was compared."""
    cards = []
    for cell, here in _by_cell(results).items():
        rows = [row for row in here if not row.is_baseline and row.num_blocks]
        if rows:
            cards.append(_card(cell, interval_chart(_marks(rows, names))))
    return [legend(names), *cards] if cards else []


def load_cards(results: Sequence[CellRow], names: Sequence[str], baseline: str, unit: str) -> list[Markup]:
    """Per workload and temperature, where several loads were measured; the baseline comes last.

    Args:
        unit: of the load.
    """
    series = [*names, baseline]
    cards = []
    for workload, temperature in dict.fromkeys((row.workload, row.temperature) for row in results):
        here = [row for row in results if (row.workload, row.temperature) == (workload, temperature)]
        if len({row.load for row in here}) < 2:
            continue
        lines = [Line(name, _over_load(here, name), number) for number, name in enumerate(series)]
        chart = line_chart([line for line in lines if line.points], unit, "tokens/s", by_factors=True)
        cards.append(
            _card(workload if temperature is None else f"{workload}, temperature {temperature:g}", chart)
        )
    return [legend(series), *cards] if cards else []


def acceptance_cards(results: Sequence[CellRow], names: Sequence[str]) -> list[Markup]:
    """Per cell in which something was drafted."""
    cards = []
    for cell, here in _by_cell(results).items():
        lines = [
            Line(row.name, _known(row.position_acceptance), names.index(row.name))
            for row in here
            if row.name in names
        ]
        lines = [line for line in lines if line.points]
        if lines:
            chart = line_chart(lines, "place in the draft", "accepted", share=True)
            cards.append(_card(cell, chart))
    return [legend(names), *cards] if cards else []


def split_cards(results: Sequence[ResultRow]) -> list[Markup]:
    """Per cell, a bar for each configuration."""
    cards = []
    for cell, here in _by_cell(results).items():
        bars = [
            Bar(row.config, tuple((phase, row.time_split.get(phase, 0.0)) for phase in PHASES))
            for row in here
            if row.time_split is not None
        ]
        if bars:
            cards.append(_card(cell, bar_chart(bars)))
    return [legend(PHASES), *cards] if cards else []


def _marks(rows: Sequence[ComparedRow], names: Sequence[str]) -> list[IntervalMark]:
    return [
        IntervalMark(
            row.name, row.speedup, row.speedup_low, row.speedup_high, names.index(row.name), _note(row)
        )
        for row in rows
    ]


def _note(row: ComparedRow) -> str:
    sign = VERDICT_SIGNS[row.verdict] if row.verdict else ""
    if row.speedup_low is None or row.speedup_high is None:
        return f"{sign} {row.speedup:.2f}x, too few blocks"
    return f"{sign} {row.speedup:.2f}x ({row.speedup_low:.2f} to {row.speedup_high:.2f})"


def _by_cell(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each cell, by its title."""
    cells: dict[str, list[Row]] = {}
    for row in rows:
        cells.setdefault(", ".join([row.workload, *row.conditions]), []).append(row)
    return cells


def _known(shares: Sequence[float | None]) -> tuple[tuple[float, float], ...]:
    return tuple((place, share) for place, share in enumerate(shares, start=1) if share is not None)


def _over_load(rows: Sequence[CellRow], name: str) -> tuple[tuple[float, float], ...]:
    own = [(row.load_number, row.tokens_per_s) for row in rows if row.name == name]
    return tuple(sorted((load, speed) for load, speed in own if load is not None and speed is not None))


def _card(title: str, chart: Markup) -> Markup:
    return element("section", element("h3", title), chart, class_="card")
