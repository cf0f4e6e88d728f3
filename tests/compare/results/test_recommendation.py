from collections.abc import Callable, Sequence

from foredraft.integration.compare.results.base import HeadToHead
from foredraft.integration.compare.results.document import offline_words
from foredraft.integration.compare.results.model import ResultRow
from foredraft.integration.compare.results.recommendation import recommendation
from foredraft.integration.compare.results.rows import overall_rows

MakeRow = Callable[..., ResultRow]


def advice(rows: list[ResultRow], pairs: Sequence[HeadToHead] = ()) -> str:
    return recommendation(rows, overall_rows(rows, 0.95, 0.01), pairs, offline_words(rows))


def beats(config: str, against: str, batch_size: int = 1) -> HeadToHead:
    return HeadToHead(
        config=config,
        against=against,
        conditions=[f"batch {batch_size}", "temperature 0"],
        num_workloads=1,
        speedup=1.1,
        speedup_low=1.05,
        speedup_high=1.15,
        standard_error=0.01,
        freedom=5,
        verdict="faster",
    )


def test_the_fastest_is_advised_with_its_k_and_interval(make_row: MakeRow) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 1.2), make_row("draft", 1.8, num_draft_tokens=3)]
    text = advice(rows, [beats("draft", "ngram")])
    assert "At batch 1 and temperature 0, run draft with K = 3: 1.80x (1.70 to 1.90)" in text
    assert "ngram" not in text
    assert "Other batch sizes were not measured" in text
    assert "Other temperatures were not measured" in text


def test_a_length_that_is_chosen_is_no_k_to_set(make_row: MakeRow) -> None:
    rows = [make_row("none", 1.0), make_row("auto", 1.8, num_draft_tokens=16, lengths_chosen=True)]
    assert "run auto with K <= 16: 1.80x" in advice(rows)


def test_what_cannot_be_told_apart_is_named(make_row: MakeRow) -> None:
    text = advice([make_row("none", 1.0), make_row("ngram", 1.7), make_row("draft", 1.8)])
    assert "run draft" in text
    assert "ngram cannot be told apart from it" in text


def test_a_direct_comparison_tells_apart_where_it_was_made(make_row: MakeRow) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 1.7), make_row("draft", 1.8)]
    assert "told apart" not in advice(rows, [beats("draft", "ngram")])
    assert "told apart" in advice(rows, [beats("draft", "ngram", batch_size=8)])
    assert "run ngram" in advice(rows, [beats("ngram", "draft")])


def test_nothing_faster_means_plain_decoding(make_row: MakeRow) -> None:
    text = advice([make_row("none", 1.0), make_row("ngram", 1.05), make_row("draft", 0.7)])
    assert "nothing was shown to be faster than plain decoding: run plain decoding (none)." in text


def test_too_few_blocks_give_no_advice(make_row: MakeRow) -> None:
    few = make_row("ngram", 3.0, speedup_low=None, speedup_high=None)
    text = advice([make_row("none", 1.0), few])
    assert "too few blocks were measured to tell anything: measure longer." in text
    assert "run " not in text
    assert "nothing was shown" in advice([make_row("none", 1.0), few, make_row("draft", 0.7)])


def test_the_fast_and_wrong_is_never_advised(make_row: MakeRow) -> None:
    wrong = make_row("ngram", 9.0, outputs_equal=False, verdict="output differs")
    text = advice([make_row("none", 1.0), wrong, make_row("draft", 1.5)])
    assert "run draft" in text
    assert "Do not run ngram" in text


def test_what_is_wrong_in_one_cell_is_advised_in_none(make_row: MakeRow) -> None:
    wrong = make_row("ngram", 2.0, batch_size=8, outputs_equal=False, verdict="output differs")
    text = advice([make_row("ngram", 2.0), wrong, make_row("draft", 1.5)])
    assert "At batch 1 and temperature 0, run draft" in text


def test_the_advice_changes_with_the_load(make_row: MakeRow) -> None:
    rows = [make_row("none", 1.0), make_row("ngram", 1.5)]
    rows += [make_row("none", 1.0, batch_size=8), make_row("ngram", 0.6, batch_size=8)]
    text = advice(rows)
    assert "At batch 1 and temperature 0, run ngram" in text
    assert "At batch 8 and temperature 0, nothing was shown to be faster" in text
    assert "The advice changes with the load" in text
    assert "Other batch sizes" not in text


def test_over_several_workloads_the_whole_decides_and_exceptions_are_named(make_row: MakeRow) -> None:
    rows = []
    for workload, ngram, draft in (("copy", 3.0, 1.4), ("chat", 0.8, 1.9), ("prose", 0.9, 1.9)):
        rows += [make_row("none", 1.0, workload=workload)]
        rows += [make_row("ngram", ngram, workload=workload), make_row("draft", draft, workload=workload)]
    text = advice(rows)
    assert "run draft with K = 5: 1.72x" in text
    assert "over 3 workloads" in text
    assert "For copy alone, at batch 1 and temperature 0, ngram with K = 5 is faster than that: 3.00x" in text


def test_only_the_largest_exceptions_are_named(make_row: MakeRow) -> None:
    rows = [make_row("ngram", 3.0, workload="copy"), make_row("none", 1.0, half_width=0.0, workload="copy")]
    for number, speedup in enumerate((0.5, 0.6, 0.7, 0.8, 0.85)):
        rows.append(make_row("none", 1.0, half_width=0.0, workload=f"w{number}"))
        rows.append(make_row("ngram", speedup, half_width=0.01, workload=f"w{number}"))
    rows += [make_row("ngram", 9.0, workload="copies"), make_row("ngram", 9.0, workload="more copies")]
    text = advice(rows)
    assert "run ngram" in text
    assert "For w0 alone, at batch 1 and temperature 0, plain decoding is faster than that." in text
    assert text.count("plain decoding is faster than that") == 3
    assert "So it is for 2 more, see the table." in text


def test_nothing_compared_gives_no_advice(make_row: MakeRow) -> None:
    assert "no advice" in advice([make_row("none", 1.0)])
    assert "no advice" in advice([])
