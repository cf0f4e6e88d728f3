import io
from collections.abc import Callable

from rich.console import Console

from foredraft.integration.compare.results.base import HeadToHead
from foredraft.integration.compare.results.model import FirstDifference, ResultDocument, ResultRow
from foredraft.integration.compare.results.regressions import regressions
from foredraft.integration.compare.results.table import print_results

MakeRow = Callable[..., ResultRow]
MakeDocument = Callable[..., ResultDocument]


def printed(document: ResultDocument) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_results(document, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def one_line(document: ResultDocument) -> str:
    return " ".join(printed(document).split())


def test_one_table_per_workload_and_one_line_per_row(make_row: MakeRow, make_document: MakeDocument) -> None:
    rows = [
        make_row(name, speedup, workload=workload)
        for workload in ("[bold]chat", "prose")
        for name, speedup in (("none", 1.0), ("ngram", 2.0))
    ]
    text = printed(make_document(rows))
    assert "workload [bold]chat, temperature 0" in text, "names are not markup"
    assert "workload prose" in text
    assert "toy, float32, a [fast] CPU, 2 threads" in text
    lines = [line.split() for line in text.splitlines() if " ngram " in line and "equal" in line]
    assert (
        lines == [["1", "5", "ngram", "200.0", "2.00x", "1.90", "2.10", "faster", "60%", "2.00", "equal"]] * 2
    )
    assert max(map(len, text.splitlines())) <= 80


def test_the_whole_has_a_table_where_there_are_several_workloads(
    make_row: MakeRow, make_document: MakeDocument
) -> None:
    rows = [make_row("ngram", 2.0, workload=workload) for workload in ("chat", "prose")]
    assert "all workloads" in one_line(make_document(rows))
    assert "all workloads" not in one_line(make_document(rows[:1]))


def test_a_difference_is_told_with_its_place(make_row: MakeRow, make_document: MakeDocument) -> None:
    first = FirstDifference(prompt_id="[red]prompt", position=3, logit_gap=0.25, rounding=0.01)
    row = make_row(outputs_equal=False, verdict="output differs", first_difference=first)
    text = one_line(make_document([row]))
    assert "WRONG" in text
    assert "DIFFERS" in text
    assert (
        "toy, ngram, batch 1, temperature 0: prompt [red]prompt differs at output token 3: "
        "logit gap 0.25, rounding 0.01" in text
    )


def test_unchecked_output_says_so(make_row: MakeRow, make_document: MakeDocument) -> None:
    assert "law not checked" in one_line(make_document([make_row(outputs_equal=None, temperature=0.7)]))


def test_too_few_tokens_for_the_law_say_so(make_row: MakeRow, make_document: MakeDocument) -> None:
    few = make_row(outputs_equal=None, temperature=0.7, law_tokens=60)
    text = one_line(make_document([few]))
    assert "too few tokens (60) to check the law" in text
    assert "few tokens" in text
    assert "law not checked" not in text


def test_what_the_baseline_cannot_say_is_shown(make_row: MakeRow, make_document: MakeDocument) -> None:
    notes = ["1 of 2 cells could not be held against it"]
    text = one_line(make_document([make_row()], regressions=[], baseline_notes=notes))
    assert "--baseline: 1 of 2 cells could not be held against it" in text


def test_too_few_blocks_say_so(make_row: MakeRow, make_document: MakeDocument) -> None:
    few = make_row(num_blocks=2, speedup_low=None, speedup_high=None)
    assert one_line(make_document([few])).count("2 blocks give no interval") == 1
    assert "no interval" not in one_line(make_document([make_row()]))


def test_proposer_faults_are_told(make_row: MakeRow, make_document: MakeDocument) -> None:
    text = one_line(make_document([make_row(proposer_faults=4)]))
    assert "ngram, batch 1, temperature 0: the proposer failed 4 times" in text


def test_the_advice_and_regressions_are_shown(make_row: MakeRow, make_document: MakeDocument) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 1.5)]
    worse = regressions([make_row("ngram", 2.0)], rows)
    text = one_line(make_document(rows, regressions=worse))
    assert "run ngram with K = 5" in text
    assert "REGRESSION: toy, ngram, batch 1, temperature 0: slower than before (2.00x, now 1.50x)" in text


def test_nothing_measured_prints_nothing(make_document: MakeDocument) -> None:
    assert printed(make_document([])) == ""


def test_pairs_have_a_table_of_their_own(
    make_row: MakeRow, make_document: MakeDocument, draft_beats_ngram: HeadToHead
) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 1.5), make_row("draft", 2.0)]
    line = "batch 1, temperature 0 draft ngram 1.33x 1.25 1.42 faster"
    assert line in one_line(make_document(rows, head_to_head=[draft_beats_ngram]))
    assert "one against the other" not in printed(make_document(rows))
