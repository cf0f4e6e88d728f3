"""The report of a comparison of servers."""

from __future__ import annotations

from foredraft.integration.compare.online.model import OnlineDocument, OnlineRow
from foredraft.integration.compare.online.table import online_notes
from foredraft.integration.compare.report.markup import Markup, element
from foredraft.integration.compare.report.page import Content, Section, make_page
from foredraft.integration.compare.report.sections import (
    acceptance_cards,
    load_cards,
    overall_cards,
    speedup_cards,
)
from foredraft.integration.compare.report.tables import (
    figures_table,
    number_cell,
    percentile_cells,
    speed_cells,
)

HEADINGS = (
    *("workload", "load", "temp", "server", "tokens/s", "speedup", "from", "to", "verdict"),
    *("accept. rate", "accept. length", "first token ms", "p95", "p99", "per token ms", "p95", "p99"),
    *("latency ms", "p95", "p99", "requests", "failed", "refused", "equal texts", "blocks"),
)
SPEEDUP_TEXT = (
    "Dots: tokens per second over those of the first server, under arrivals its mean latency over the own; "
    "lines: intervals. All intervals of this run hold together with 95 %. Dashed: as fast as the first."
)
LOAD_TEXT = "Output tokens over wall time, reading the prompts included."
ACCEPTANCE_TEXT = "Per draft and place in it, how often the model kept the token, by the server's own count."


def online_report_page(document: OnlineDocument) -> str:
    """The page, see ``report.page``."""
    rows = document.results
    baseline = rows[0].endpoint
    names = list(dict.fromkeys(row.endpoint for row in rows if not row.is_baseline))
    unit = "requests in flight" if rows[0].arrivals_per_s is None else "arrivals per second"
    overall = overall_cards(document.overall, names)
    sections = [
        Section("Speedup over all workloads", SPEEDUP_TEXT, overall, always_open=True),
        Section("Speedup per workload", SPEEDUP_TEXT, speedup_cards(rows, names)),
        Section("Tokens per second over load", LOAD_TEXT, load_cards(rows, names, baseline, unit)),
        Section("Acceptance by position", ACCEPTANCE_TEXT, acceptance_cards(rows, [*names, baseline])),
    ]
    servers = ", ".join(dict.fromkeys(f"{row.endpoint}: {row.model} at {row.url}" for row in rows))
    table = figures_table(HEADINGS, [_cells(row) for row in rows])
    return make_page(document, Content(servers, sections, table, len(rows), online_notes(rows)))


def _cells(row: OnlineRow) -> list[Markup]:
    return [
        element("td", row.workload, class_="text"),
        element("td", row.load),
        number_cell(row.temperature, "{:g}"),
        element("td", row.endpoint, class_="text"),
        *speed_cells(row),
        number_cell(row.acceptance_rate, "{:.0%}"),
        number_cell(row.acceptance_length, "{:.2f}"),
        *percentile_cells(row.time_to_first_token_s),
        *percentile_cells(row.time_per_output_token_s),
        *percentile_cells(row.latency_s),
        element("td", str(row.num_requests)),
        element("td", str(row.num_failed)),
        element("td", str(row.num_refused)),
        number_cell(row.num_equal_texts, "{:d}"),
        element("td", str(row.num_blocks)),
    ]
