"""The tables of the report."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.integration.compare.offline.law_check import ALARM
from foredraft.integration.compare.report.markup import Markup, element
from foredraft.integration.compare.results.model import Percentiles, ResultDocument, ResultRow

HEADINGS = (
    *("workload", "batch", "temp", "config", "K", "tokens/s", "speedup", "from", "to", "verdict", "output"),
    *("accept. rate", "accept. length", "drafted", "wasted", "first token ms", "p95", "p99"),
    *("per token ms", "p95", "p99", "ideal", "of ideal", "memory MB", "blocks"),
)
TEXT_HEADINGS = ("workload", "config", "verdict", "output")
VERDICT_CLASSES = {"faster": "good", "slower": "bad", "output differs": "bad", "no difference shown": "open"}
OUTPUT_WORDS = {True: "equal", "near_tie": "near-tie", False: "differs", None: "law not checked"}


def results_table(rows: Sequence[ResultRow]) -> Markup:
    """Every row, in a frame that scrolls sideways."""
    head = [element("th", name, class_="text" if name in TEXT_HEADINGS else None) for name in HEADINGS]
    body = [element("tr", *_cells(row)) for row in rows]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", table, class_="scroll", tabindex="0")


def provenance(document: ResultDocument) -> Markup:
    """What is needed to judge and repeat the figures."""
    design = document.design
    facts = {
        "command": document.command,
        "commit": document.commit or "not from a checkout",
        "seed": str(document.seed),
        "started": document.started_at,
        "design": _design(document),
        "smallest effect called": f"{design.min_effect:.1%}",
        "level of each interval": f"{design.interval_level:.4%}, so that all hold together with 95 %",
        "prefix cache": design.prefix_cache,
        "output above temperature 0": design.sampled_output,
        **{name: str(value) for name, value in document.environment.items() if value is not None},
    }
    return element("dl", *[part for name, text in facts.items() for part in _entry(name, text)])


def _design(document: ResultDocument) -> str:
    design = document.design
    if design.looks is None:
        return f"fixed: each prompt at least {design.repeats} times, one look at the end"
    looks = ", ".join(map(str, design.looks))
    return f"until each verdict is clear or {design.budget_s:g} s have passed; looks after {looks} blocks"


def _entry(name: str, text: str) -> tuple[Markup, Markup]:
    return element("dt", name), element("dd", text)


def _cells(row: ResultRow) -> list[Markup]:
    verdict_class = VERDICT_CLASSES.get(row.verdict or "", "")
    output_class = "text bad" if row.outputs_equal is False or _is_law_wrong(row) else "text"
    return [
        element("td", row.workload, class_="text"),
        element("td", str(row.batch_size)),
        element("td", f"{row.temperature:g}"),
        element("td", row.config, class_="text"),
        element("td", str(row.num_draft_tokens)),
        element("td", f"{row.tokens_per_s:.1f}"),
        element("td", f"{row.speedup:.2f}x"),
        element("td", _number(row.speedup_low, "{:.2f}")),
        element("td", _number(row.speedup_high, "{:.2f}")),
        element("td", row.verdict or "baseline", class_=f"text {verdict_class}".strip()),
        element("td", _output_word(row), class_=output_class),
        element("td", _number(row.acceptance_rate, "{:.0%}")),
        element("td", f"{row.acceptance_length:.2f}"),
        element("td", str(row.drafted_tokens)),
        element("td", str(row.wasted_tokens)),
        *_percentile_cells(row.time_to_first_token_s),
        *_percentile_cells(row.time_per_output_token_s),
        element("td", _number(row.ideal_speedup, "{:.2f}x")),
        element("td", _number(row.share_of_ideal, "{:.0%}")),
        element("td", "-" if row.memory_bytes is None else f"{row.memory_bytes / 1e6:.1f}"),
        element("td", str(row.num_blocks)),
    ]


def _output_word(row: ResultRow) -> str:
    if _is_law_wrong(row):
        return "law wrong"
    if row.outputs_equal is None and row.law_p_value is not None:
        return "law holds"
    return OUTPUT_WORDS[row.outputs_equal]


def _is_law_wrong(row: ResultRow) -> bool:
    return row.law_p_value is not None and row.law_p_value < ALARM


def _percentile_cells(seconds: Percentiles | None) -> list[Markup]:
    values = (None,) * 3 if seconds is None else (seconds.median, seconds.p95, seconds.p99)
    return [element("td", _number(None if value is None else value * 1e3, "{:.1f}")) for value in values]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
