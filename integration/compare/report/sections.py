"""The plots of the report: which rows go into which picture. Each list begins with its legend."""

from __future__ import annotations

from collections.abc import Sequence

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
from foredraft.integration.compare.results.model import OverallRow, ResultDocument, ResultRow
from foredraft.integration.compare.variants import BASELINE

PHASES = ("propose", "forward", "sample", "rest")
VERDICT_SIGNS = {"faster": "▲", "slower": "▼", "no difference shown": "≈", "output differs": "✗ wrong,"}


def overall_cards(document: ResultDocument, names: Sequence[str]) -> list[Markup]:
    """Per batch size and temperature, over all workloads."""
    cards = []
    for batch_size, temperature in dict.fromkeys(
        (row.batch_size, row.temperature) for row in document.overall
    ):
        at = (batch_size, temperature)
        rows = [row for row in document.overall if (row.batch_size, row.temperature) == at]
        title = f"batch {batch_size}, temperature {temperature:g}"
        cards.append(_card(title, interval_chart(_marks(rows, names))))
    return [legend(names), *cards] if cards else []


def speedup_cards(document: ResultDocument, names: Sequence[str]) -> list[Markup]:
    """Per cell in which something was compared."""
    cards = []
    for cell in dict.fromkeys(_cell(row) for row in document.results):
        rows = [row for row in document.results if _cell(row) == cell and row.config != BASELINE]
        if rows:
            cards.append(_card(_cell_title(cell), interval_chart(_marks(rows, names))))
    return [legend(names), *cards] if cards else []


def batch_cards(document: ResultDocument, names: Sequence[str]) -> list[Markup]:
    """Per workload and temperature, where several batch sizes were measured; plain decoding comes last."""
    series = [*names, BASELINE]
    cards = []
    for workload, temperature in dict.fromkeys((row.workload, row.temperature) for row in document.results):
        here = [row for row in document.results if (row.workload, row.temperature) == (workload, temperature)]
        if len({row.batch_size for row in here}) < 2:
            continue
        lines = [Line(name, _over_batch_size(here, name), number) for number, name in enumerate(series)]
        chart = line_chart([line for line in lines if line.points], "batch size", "tokens/s", by_factors=True)
        cards.append(_card(f"{workload}, temperature {temperature:g}", chart))
    return [legend(series), *cards] if cards else []


def acceptance_cards(document: ResultDocument, names: Sequence[str]) -> list[Markup]:
    """Per cell in which something was drafted."""
    cards = []
    for cell in dict.fromkeys(_cell(row) for row in document.results):
        lines = [
            Line(row.config, _known(row.position_acceptance), names.index(row.config))
            for row in document.results
            if _cell(row) == cell and row.config in names
        ]
        lines = [line for line in lines if line.points]
        if lines:
            chart = line_chart(lines, "place in the draft", "accepted", share=True)
            cards.append(_card(_cell_title(cell), chart))
    return [legend(names), *cards] if cards else []


def split_cards(document: ResultDocument) -> list[Markup]:
    """Per cell, a bar for each configuration."""
    cards = []
    for cell in dict.fromkeys(_cell(row) for row in document.results):
        bars = [
            Bar(row.config, tuple((phase, row.time_split.get(phase, 0.0)) for phase in PHASES))
            for row in document.results
            if _cell(row) == cell and row.time_split is not None
        ]
        if bars:
            cards.append(_card(_cell_title(cell), bar_chart(bars)))
    return [legend(PHASES), *cards] if cards else []


def _marks(rows: Sequence[ResultRow | OverallRow], names: Sequence[str]) -> list[IntervalMark]:
    return [
        IntervalMark(
            row.config, row.speedup, row.speedup_low, row.speedup_high, names.index(row.config), _note(row)
        )
        for row in rows
    ]


def _note(row: ResultRow | OverallRow) -> str:
    sign = VERDICT_SIGNS[row.verdict] if row.verdict else ""
    if row.speedup_low is None or row.speedup_high is None:
        return f"{sign} {row.speedup:.2f}x, no interval"
    return f"{sign} {row.speedup:.2f}x ({row.speedup_low:.2f} to {row.speedup_high:.2f})"


def _cell(row: ResultRow) -> tuple[str, int, float]:
    return row.workload, row.batch_size, row.temperature


def _cell_title(cell: tuple[str, int, float]) -> str:
    return f"{cell[0]}, batch {cell[1]}, temperature {cell[2]:g}"


def _known(shares: Sequence[float | None]) -> tuple[tuple[float, float], ...]:
    return tuple((place, share) for place, share in enumerate(shares, start=1) if share is not None)


def _over_batch_size(rows: Sequence[ResultRow], name: str) -> tuple[tuple[float, float], ...]:
    return tuple(sorted((row.batch_size, row.tokens_per_s) for row in rows if row.config == name))


def _card(title: str, chart: Markup) -> Markup:
    return element("section", element("h3", title), chart, class_="card")
