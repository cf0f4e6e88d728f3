"""The report: one HTML file that needs nothing else, from the result document."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from foredraft.integration.compare.report.markup import Markup, element, joined
from foredraft.integration.compare.report.sections import (
    acceptance_cards,
    batch_cards,
    overall_cards,
    speedup_cards,
    split_cards,
)
from foredraft.integration.compare.report.tables import provenance, results_table
from foredraft.integration.compare.results.model import ResultDocument
from foredraft.integration.compare.results.provenance import run_label
from foredraft.integration.compare.results.table import notes
from foredraft.integration.compare.variants import BASELINE

MANY_ROWS = 80
"""From here on the long parts are folded."""


def report_page(document: ResultDocument) -> str:
    """The page. A style sheet and drawings inside, no script, no address: it opens without a network."""
    names = [name for name in document.configs if name != BASELINE]
    is_long = len(document.results) > MANY_ROWS
    body = joined(
        element("h1", "foredraft compare"),
        element("p", _subtitle(document), class_="faint"),
        element("p", document.recommendation, class_="advice"),
        *_regressions(document),
        *_section("Speedup over all workloads", SPEEDUP_TEXT, overall_cards(document, names), False),
        *_section("Speedup per workload", SPEEDUP_TEXT, speedup_cards(document, names), is_long),
        *_section("Tokens per second over batch size", BATCH_TEXT, batch_cards(document, names), is_long),
        *_section("Acceptance by position", ACCEPTANCE_TEXT, acceptance_cards(document, names), is_long),
        *_section("Where the time goes", SPLIT_TEXT, split_cards(document), is_long),
        element("h2", "All figures"),
        _folded(f"{len(document.results)} rows", results_table(document.results), is_long),
        *_notes(document),
        element("h2", "How it was measured"),
        provenance(document),
    )
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "foredraft compare"),
        element("style", Markup(style)),
    )
    return "<!doctype html>\n" + element("html", head, element("body", body), lang="en") + "\n"


SPEEDUP_TEXT = (
    "Dots: tokens per second over those of plain decoding; lines: intervals. All intervals of this run hold "
    "together with 95 %. Dashed: as fast as plain decoding. The axis is logarithmic."
)
BATCH_TEXT = "Output tokens over wall time, reading the prompts included."
ACCEPTANCE_TEXT = "Of the tokens drafted at each place, how many the model kept."
SPLIT_TEXT = "Shares of the engine's time: drafting, the pass of the model, sampling, and the rest."


def _subtitle(document: ResultDocument) -> str:
    text = f"{run_label(document.environment)} · {document.started_at} · {document.seconds:.0f} s"
    return f"{text} · interrupted, blocks are missing" if document.interrupted else text


def _section(title: str, text: str, cards: Sequence[Markup], is_long: bool) -> list[Markup]:
    if not cards:
        return []
    grid = element("div", *cards[1:], class_="cards")
    shown = _folded(f"{len(cards) - 1} plots", grid, is_long)
    return [element("h2", title), element("p", text, class_="faint"), cards[0], shown]


def _folded(summary: str, content: Markup, is_long: bool) -> Markup:
    return element("details", element("summary", summary), content) if is_long else content


def _regressions(document: ResultDocument) -> list[Markup]:
    if document.regressions is None:
        return []
    if not document.regressions:
        return [element("p", "Nothing is worse than in the result compared with.")]
    items = [
        element(
            "li",
            f"{one.workload}, {one.config}, batch {one.batch_size}, temperature {one.temperature:g}: "
            f"{one.what} ({one.before:.2f}x, now {one.now:.2f}x)",
        )
        for one in document.regressions
    ]
    return [element("h2", "Worse than before"), element("ul", *items, class_="bad")]


def _notes(document: ResultDocument) -> list[Markup]:
    found = notes(document.results)
    if not found:
        return []
    items = element("ul", *[element("li", note) for note in found], class_="faint")
    return [_folded(f"{len(found)} notes", items, len(found) > 10)]
