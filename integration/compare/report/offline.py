"""The report of a comparison on the embedded engine."""

from __future__ import annotations

from foredraft.integration.compare.report.page import Content, Section, make_page
from foredraft.integration.compare.report.sections import (
    acceptance_cards,
    load_cards,
    overall_cards,
    speedup_cards,
    split_cards,
)
from foredraft.integration.compare.report.tables import results_table
from foredraft.integration.compare.results.model import ResultDocument
from foredraft.integration.compare.results.provenance import run_label
from foredraft.integration.compare.results.table import notes
from foredraft.integration.compare.variants import BASELINE

SPEEDUP_TEXT = (
    "Dots: tokens per second over those of plain decoding; lines: intervals. All intervals of this run hold "
    "together with 95 %. Dashed: as fast as plain decoding. The axis is logarithmic."
)
LOAD_TEXT = "Output tokens over wall time, reading the prompts included."
ACCEPTANCE_TEXT = "Of the tokens drafted at each place, how many the model kept."
SPLIT_TEXT = "Shares of the engine's time: drafting, the pass of the model, sampling, and the rest."


def report_page(document: ResultDocument) -> str:
    """The page, see ``report.page``."""
    names = [name for name in document.configs if name != BASELINE]
    rows = document.results
    load = "batch size" if all(row.arrivals_per_s is None for row in rows) else "arrivals per second"
    loads = load_cards(rows, names, BASELINE, load)
    sections = [
        Section(
            "Speedup over all workloads",
            SPEEDUP_TEXT,
            overall_cards(document.overall, names),
            always_open=True,
        ),
        Section("Speedup per workload", SPEEDUP_TEXT, speedup_cards(rows, names)),
        Section(f"Tokens per second over {load}", LOAD_TEXT, loads),
        Section("Acceptance by position", ACCEPTANCE_TEXT, acceptance_cards(rows, names)),
        Section("Where the time goes", SPLIT_TEXT, split_cards(rows)),
    ]
    content = Content(run_label(document.environment), sections, results_table(rows), len(rows), notes(rows))
    return make_page(document, content)
