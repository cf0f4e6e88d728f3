import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from foredraft.integration.compare.offline.closed_loop import BlockRun, DecodeTotals, RequestTimes
from foredraft.integration.compare.offline.journal import Journal, measured_what
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import Difference
from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.errors import UserError

MEASURED = {"seed": 1}


@pytest.fixture
def blocks(make_run: Callable[..., BlockRun]) -> list[MeasuredBlock]:
    run = replace(
        make_run(0.1 + 0.2),
        request_times=[RequestTimes(0.25, None)],
        decode=DecodeTotals(3, 5, {"forward": 0.5}),
        accepted_per_position=[1],
    )
    differences = {"none": [None], "ngram": [Difference(3, 0.25, None, near_tie=False)], "draft": None}
    runs = dict.fromkeys(differences, run)
    return [MeasuredBlock(Cell("toy", 1, 0.0), number, ["p"], runs, differences) for number in range(3)]


def test_blocks_come_back_as_they_were(tmp_path: Path, blocks: list[MeasuredBlock]) -> None:
    path = tmp_path / "run.journal"
    journal = Journal(path, MEASURED)
    assert journal.finished == {}
    for block in blocks:
        journal.add(block)
    assert list(Journal(path, MEASURED).finished.values()) == blocks


def test_a_block_is_kept_once(tmp_path: Path, blocks: list[MeasuredBlock]) -> None:
    path = tmp_path / "run.journal"
    Journal(path, MEASURED).add(blocks[0])
    again = Journal(path, MEASURED)
    again.add(blocks[0])
    again.add(blocks[1])
    assert len(path.read_text().splitlines()) == 3


def test_a_line_that_a_kill_cut_off_is_forgotten(tmp_path: Path, blocks: list[MeasuredBlock]) -> None:
    path = tmp_path / "run.journal"
    journal = Journal(path, MEASURED)
    journal.add(blocks[0])
    journal.add(blocks[1])
    path.write_bytes(path.read_bytes()[:-40])
    again = Journal(path, MEASURED)
    assert list(again.finished.values()) == blocks[:1]
    again.add(blocks[1])
    assert list(Journal(path, MEASURED).finished.values()) == blocks[:2]


def test_a_file_cut_off_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    path.write_text('{"measu')
    assert Journal(path, MEASURED).finished == {}
    assert json.loads(path.read_text()) == {"measured": MEASURED}


def test_the_journal_of_another_comparison_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    Journal(path, MEASURED)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"another comparison \(seed differ"):
        Journal(path, {"seed": 2})
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["hello\n", "[]\n", '{"measured": {"seed": 1}}\n{"cell": 1}\n'])
def test_what_is_no_journal_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(UserError, match="is no journal"):
        Journal(path, MEASURED)
    assert path.read_text() == text


def test_what_is_measured_includes_prompts_and_options_but_no_budget(
    make_plan: Callable[..., ComparePlan],
) -> None:
    plan = make_plan()
    known = measured_what(plan, {"toy": [Prompt("p", [1])]}, {"cpu": "x"})
    assert json.loads(json.dumps(known)) == known
    assert measured_what(replace(plan, budget_s=5), {"toy": [Prompt("p", [1])]}, {"cpu": "x"}) == known
    assert measured_what(plan, {"toy": [Prompt("p", [2])]}, {"cpu": "x"}) != known
    assert measured_what(plan.without({"ngram"}), {"toy": [Prompt("p", [1])]}, {"cpu": "x"}) != known
