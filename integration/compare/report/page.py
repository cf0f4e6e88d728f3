"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from foredraft.integration.compare.report.markup import Markup, element, joined
from foredraft.integration.compare.report.tables import design_text, facts_list, head_to_head_table
from foredraft.integration.compare.results.base import ComparisonDocument, HeadToHead

MANY_ROWS = 80
"""From here on the long parts are folded."""


@dataclass(frozen=True)
class Section:
    """Plots that belong together; none of them, no section.

    Attributes:
        cards: the legend, then the plots.
    """

    title: str
    text: str
    cards: Sequence[Markup]
    always_open: bool = False


@dataclass(frozen=True)
class Content:
    """What a mode of the comparison puts on the page.

    Attributes:
        subtitle: what ran on what.
        table: all figures.
        notes: what deserves a sentence.
    """

    subtitle: str
    sections: Sequence[Section]
    table: Markup
    num_rows: int
    notes: Sequence[str]


def make_page(document: ComparisonDocument, content: Content) -> str:
    """The page. A style sheet and drawings inside, no script, no address: it opens without a network."""
    is_long = content.num_rows > MANY_ROWS
    body = joined(
        element("h1", "foredraft compare"),
        element("p", _subtitle(document, content.subtitle), class_="faint"),
        element("p", document.recommendation, class_="advice"),
        *_regressions(document),
        *[part for section in content.sections for part in _section(section, is_long)],
        *_pairs(document.head_to_head),
        element("h2", "All figures"),
        _folded(f"{content.num_rows} rows", content.table, is_long),
        *_notes(content.notes),
        element("h2", "How it was measured"),
        facts_list(_facts(document)),
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


def _subtitle(document: ComparisonDocument, own: str) -> str:
    text = f"{own} · {document.started_at} · {document.seconds:.0f} s"
    return f"{text} · interrupted, blocks are missing" if document.interrupted else text


def _section(section: Section, is_long: bool) -> list[Markup]:
    if not section.cards:
        return []
    legend, *plots = section.cards
    grid = element("div", *plots, class_="cards")
    shown = _folded(f"{len(plots)} plots", grid, is_long and not section.always_open)
    return [element("h2", section.title), element("p", section.text, class_="faint"), legend, shown]


def _pairs(pairs: Sequence[HeadToHead]) -> list[Markup]:
    if not pairs:
        return []
    text = "Over all workloads, by the blocks that both served; above 1 the first is the faster one."
    return [
        element("h2", "One against the other"),
        element("p", text, class_="faint"),
        head_to_head_table(pairs),
    ]


def _folded(summary: str, content: Markup, is_long: bool) -> Markup:
    return element("details", element("summary", summary), content) if is_long else content


def _regressions(document: ComparisonDocument) -> list[Markup]:
    if document.regressions is None:
        return []
    unknown = [element("p", f"Of the result compared with: {one}.") for one in document.baseline_notes or ()]
    if not document.regressions:
        return [element("p", "Nothing was shown to be worse than in the result compared with."), *unknown]
    items = [element("li", one.sentence) for one in document.regressions]
    return [element("h2", "Worse than before"), element("ul", *items, class_="bad"), *unknown]


def _notes(found: Sequence[str]) -> list[Markup]:
    if not found:
        return []
    items = element("ul", *[element("li", note) for note in found], class_="faint")
    return [_folded(f"{len(found)} notes", items, len(found) > 10)]


def _facts(document: ComparisonDocument) -> Mapping[str, str]:
    """What is needed to judge and repeat the figures."""
    design = document.design
    return {
        "command": document.command,
        "commit": document.commit or "not from a checkout",
        "seed": str(document.seed),
        "started": document.started_at,
        "design": design_text(design),
        "smallest effect called": f"{design.min_effect:.1%}",
        "level of each interval": f"{design.interval_level:.4%}, so that all hold together with 95 %",
        "prefix cache": design.prefix_cache,
        "output check": design.sampled_output,
        **{name: str(value) for name, value in document.environment.items() if value is not None},
    }
