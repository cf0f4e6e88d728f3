from collections.abc import Callable
from pathlib import Path

import pytest

from foredraft.integration.compare.results.changes import changed_facts, changed_options
from foredraft.integration.compare.results.model import ResultDocument, ResultRow
from foredraft.integration.compare.results.regressions import (
    check_same_requests,
    num_common,
    read_result,
    regressions,
    unheld,
)
from foredraft.integration.compare.results.writing import write_json
from foredraft.integration.errors import UserError

MakeRow = Callable[..., ResultRow]


def test_slower_means_that_the_intervals_do_not_meet(make_row: MakeRow) -> None:
    before = [make_row("ngram", 2.0)]
    assert regressions(before, [make_row("ngram", 1.85)]) == []
    (found,) = regressions(before, [make_row("ngram", 1.7)])
    assert (found.what, found.before, found.now) == ("slower than before", 2.0, 1.7)
    assert regressions([make_row("ngram", 1.7)], before) == [], "faster is no regression"


def test_output_that_was_right_counts(make_row: MakeRow) -> None:
    wrong = make_row("ngram", 2.0, outputs_equal=False, verdict="output differs")
    (found,) = regressions([make_row("ngram", 2.0)], [wrong])
    assert found.what == "output differs now"
    assert regressions([wrong], [wrong]) == []


def test_only_equal_cells_are_compared(make_row: MakeRow) -> None:
    before = [make_row("ngram", 2.0)]
    now = [make_row("ngram", 1.0, batch_size=8), make_row("draft", 1.0), make_row("none", 1.0)]
    assert regressions(before, now) == []
    assert (num_common(before, now), num_common(before, before)) == (0, 1)


def test_without_an_interval_nothing_is_called(make_row: MakeRow) -> None:
    unknown = make_row("ngram", 0.1, speedup_low=None, speedup_high=None)
    assert regressions([make_row("ngram", 2.0)], [unknown]) == []
    assert regressions([unknown], [make_row("ngram", 0.01, half_width=0.001)]) == []


def test_what_cannot_be_compared_now_is_worse(make_row: MakeRow) -> None:
    """A row without a block has a speedup of 1 that means nothing."""
    unknown = {"num_blocks": 0, "speedup_low": None, "speedup_high": None}
    dead = make_row("ngram", 1.0, **unknown)
    (found,) = regressions([make_row("ngram", 2.0)], [dead])
    assert (found.what, found.now) == ("cannot be compared now", None)
    assert found.sentence.endswith("cannot be compared now (2.00x, now none)")
    assert regressions([dead], [dead]) == []
    (found,) = regressions([make_row("none", 1.0)], [make_row("none", 1.0, **unknown)])
    assert found.config == "none"


def test_what_could_not_be_held_against_it_is_counted(make_row: MakeRow) -> None:
    few = make_row("ngram", 2.0, speedup_low=None, speedup_high=None)
    before = [make_row("none", 1.0), make_row("ngram", 2.0), make_row("draft", 2.0), make_row("other", 1.0)]
    now = [make_row("none", 1.0), few, make_row("draft", 2.0)]
    assert unheld(before, now) == [
        "1 of 2 cells could not be held against it: too few blocks for an interval",
        "1 of its 3 cells were not measured now",
    ]
    assert unheld(now[:2], before)[0].startswith("1 of 1 cells")
    assert unheld(before, before) == []


def test_unequal_requests_are_refused() -> None:
    check_same_requests({"a": "1"}, {"a": "1", "b": "2"})
    with pytest.raises(UserError, match="'b' held other requests"):
        check_same_requests({"a": "1", "b": "3"}, {"a": "1", "b": "2"})


def test_options_that_changed_are_told() -> None:
    none = {"proposer": "none", "engine": {"max_num_seqs": 8}, "sampling": {"n": 1}, "dtype": "auto"}
    ngram = {"proposer": "ngram", "engine": {"max_num_seqs": 8}, "ngram": {"max_n": 3}}
    now = {
        "none": none | {"engine": {"max_num_seqs": 4}, "sampling": {"n": 2}, "dtype": "float32"},
        "ngram": ngram | {"engine": {"max_num_seqs": 4}, "ngram": {"max_n": 2}},
    }
    assert changed_options({"none": none, "ngram": ngram}, now) == [
        "ngram: ngram.max_n was 3 then and is 2 now",
        "none: engine.max_num_seqs was 8 then and is 4 now",
    ]
    assert changed_facts({"model": "a", "cpu": "x"}, {"model": "b", "cpu": "y"}) == [
        "model was 'a' then and is 'b' now"
    ]


def test_a_written_result_can_be_read(
    make_row: MakeRow, make_document: Callable[..., ResultDocument], tmp_path: Path
) -> None:
    document = make_document([make_row("none", 1.0), make_row("ngram")])
    write_json(tmp_path / "old.json", document.model_dump(mode="json"))
    assert read_result(tmp_path / "old.json", ResultDocument) == document


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("7", "no result of this version of compare: as a whole: "),
        ("[]", "no result of this version of compare: as a whole: "),
        ("{}", "no result of this version of compare: head_to_head: "),
        ('{"schema_version": 1, "results": []}', "no result of this version of compare: schema_version: "),
        ('{"max_tokens": 8, "results": []}', "of the other mode: it compares servers, this run config"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"--baseline: .*old\.json' is {named}"):
        read_result(path, ResultDocument)


def test_a_missing_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_result(tmp_path / "old.json", ResultDocument)
