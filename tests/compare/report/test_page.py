"""The report page: complete, well-formed, and without anything to fetch."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from foredraft.integration.compare.report.offline import report_page
from foredraft.integration.compare.results.base import HeadToHead
from foredraft.integration.compare.results.model import ResultDocument, ResultRow

MakeRow = Callable[..., ResultRow]
MakeDocument = Callable[..., ResultDocument]

VOID = {"meta", "br"}


class Structure(HTMLParser):
    """Collects tags and attributes, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def structure(page: str) -> Structure:
    parser = Structure()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def many_rows(make_row: MakeRow, num_workloads: int) -> list[ResultRow]:
    return [
        make_row(name, speedup, workload=f"set/{number}", batch_size=batch_size)
        for number in range(num_workloads)
        for batch_size in (1, 8)
        for name, speedup in (
            ("none", 1.0),
            ("ngram", 0.8 + number / 40),
            ("draft", 1.3),
            ("early_exit", 1.1),
        )
    ]


def test_a_page_with_every_section(make_row: MakeRow, make_document: MakeDocument) -> None:
    page = report_page(make_document(many_rows(make_row, 3)))
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == [
        *(
            "Speedup over all workloads",
            "Speedup per workload",
            "Tokens per second over batch size",
            "Acceptance by position",
        ),
        *("Where the time goes", "All figures", "How it was measured"),
    ]
    parser = structure(page)
    # Per batch size 3 workloads and the whole; 3 over batch size; 6 cells of acceptance, 6 of time.
    assert parser.tags.count("svg") == 8 + 3 + 6 + 6
    assert parser.tags.count("tr") == 1 + 24
    assert "run draft with K = 5" in page


@pytest.mark.parametrize("num_workloads", [1, 63])
def test_nothing_is_fetched(make_row: MakeRow, make_document: MakeDocument, num_workloads: int) -> None:
    """63 workloads make 504 rows."""
    page = report_page(make_document(many_rows(make_row, num_workloads)))
    parser = structure(page)
    assert not {"script", "link", "img", "iframe", "object", "use", "image"} & set(parser.tags)
    assert not {"src", "href", "srcset", "xlink:href"} & {name for name, _ in parser.attributes}
    assert "url(" not in page
    assert "@import" not in page
    assert "http" not in page


def test_a_page_with_one_row(make_row: MakeRow, make_document: MakeDocument) -> None:
    page = report_page(make_document([make_row("none", 1.0, time_split=None)]))
    structure(page)
    assert "<svg" not in page
    assert "no advice" in page


def test_a_long_page_is_folded(make_row: MakeRow, make_document: MakeDocument) -> None:
    page = report_page(make_document(many_rows(make_row, 63)))
    assert structure(page).tags.count("details") == 5
    assert "<summary>504 rows</summary>" in page
    assert "details" not in structure(report_page(make_document(many_rows(make_row, 3)))).tags
    assert len(page) < 4_000_000


def test_every_drawing_is_well_formed_and_inside_its_frame(
    make_row: MakeRow, make_document: MakeDocument
) -> None:
    page = report_page(make_document(many_rows(make_row, 3)))
    for drawing in re.findall("<svg.*?</svg>", page):
        root = ElementTree.fromstring(drawing)
        width, height = (float(part) for part in root.attrib["viewBox"].split()[2:])
        for part in root.iter():
            for name in ("x", "x1", "x2", "cx"):
                assert 0 <= float(part.attrib.get(name, 0)) <= width, ElementTree.tostring(part)
            for name in ("y", "y1", "y2", "cy"):
                assert 0 <= float(part.attrib.get(name, 0)) <= height, ElementTree.tostring(part)
        assert root.attrib["aria-label"]


def test_names_from_outside_are_escaped(make_row: MakeRow, make_document: MakeDocument) -> None:
    rows = [make_row(name, workload="<script>alert(1)</script>") for name in ("none", "a&b")]
    page = report_page(make_document(rows, command='foredraft compare "<b>"'))
    assert "<script" not in page
    assert "<b>" not in page
    assert "a&amp;b" in page
    structure(page)


def test_missing_figures_are_drawn_as_missing(make_row: MakeRow, make_document: MakeDocument) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 1.4, speedup_low=None, speedup_high=None)]
    page = report_page(make_document(rows, interrupted=True))
    assert "? 1.40x, too few blocks" in page
    assert "≈" not in page, "the sign of another verdict"
    assert "interrupted" in page
    assert not re.search(r"\b(nan|None|inf)\b", page)


def test_a_long_name_leaves_room_for_the_figures(make_row: MakeRow, make_document: MakeDocument) -> None:
    name = "a" * 80
    page = report_page(make_document([make_row("none", 1.0), make_row(name)]))
    labels = re.findall(r'class="label">([^<]*)<', page)
    assert labels
    assert all(len(label) <= 48 for label in labels)
    assert f"<title>{name}: " in page, "the tip has it all"
    assert "<dt>output check</dt>" in page


def test_extreme_speedups_stay_inside(make_row: MakeRow, make_document: MakeDocument) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 40.0), make_row("draft", 0.02, half_width=0.01)]
    structure(report_page(make_document(rows)))


def test_dark_mode_and_phones_are_provided_for(make_row: MakeRow, make_document: MakeDocument) -> None:
    page = report_page(make_document(many_rows(make_row, 1)))
    assert "prefers-color-scheme: dark" in page
    assert 'content="width=device-width, initial-scale=1"' in page


def test_pairs_are_a_table_of_the_page(
    make_row: MakeRow, make_document: MakeDocument, draft_beats_ngram: HeadToHead
) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 1.5), make_row("draft", 2.0)]
    assert "One against the other" not in report_page(make_document(rows))
    page = report_page(make_document(rows, head_to_head=[draft_beats_ngram]))
    assert "<td>1.33x</td><td>1.25</td><td>1.42</td>" in page.replace("\n", "")
