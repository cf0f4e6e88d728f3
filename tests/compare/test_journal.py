import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from foredraft.integration.compare import journal as journal_module
from foredraft.integration.compare.journal import Journal
from foredraft.integration.compare.offline.block_run import BlockRun, DecodeTotals, RequestTimes
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import Difference
from foredraft.integration.compare.plan import Cell
from foredraft.integration.errors import UserError

MEASURED = {"seed": 1}


@pytest.fixture
def blocks(make_run: Callable[..., BlockRun]) -> list[MeasuredBlock]:
    run = replace(
        make_run(0.1 + 0.2),
        request_times=[RequestTimes(0.25, None, 0.25)],
        decode=DecodeTotals(3, 5, {"forward": 0.5}),
        accepted_per_position=[1],
    )
    differences = {"none": [None], "ngram": [Difference(3, 0.25, None, near_tie=False)], "draft": None}
    runs = dict.fromkeys(differences, run)
    return [MeasuredBlock(Cell("toy", 1, 0.0), number, ["p"], runs, differences) for number in range(3)]


def test_blocks_come_back_as_they_were(tmp_path: Path, blocks: list[MeasuredBlock]) -> None:
    path = tmp_path / "run.journal"
    journal = Journal(path, MeasuredBlock, MEASURED)
    assert journal.finished == {}
    for block in blocks:
        journal.add(block)
    journal.close()
    assert list(Journal(path, MeasuredBlock, MEASURED).finished.values()) == blocks


def test_a_block_is_kept_once(tmp_path: Path, blocks: list[MeasuredBlock]) -> None:
    path = tmp_path / "run.journal"
    journal = Journal(path, MeasuredBlock, MEASURED)
    journal.add(blocks[0])
    journal.close()
    again = Journal(path, MeasuredBlock, MEASURED)
    again.add(blocks[0])
    again.add(blocks[1])
    assert len(path.read_text().splitlines()) == 3


def test_a_line_that_a_kill_cut_off_is_forgotten(tmp_path: Path, blocks: list[MeasuredBlock]) -> None:
    path = tmp_path / "run.journal"
    journal = Journal(path, MeasuredBlock, MEASURED)
    journal.add(blocks[0])
    journal.add(blocks[1])
    journal.close()
    path.write_bytes(path.read_bytes()[:-40])
    again = Journal(path, MeasuredBlock, MEASURED)
    assert list(again.finished.values()) == blocks[:1]
    again.add(blocks[1])
    again.close()
    assert list(Journal(path, MeasuredBlock, MEASURED).finished.values()) == blocks[:2]


def test_a_file_cut_off_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    path.write_text('{"measu')
    assert Journal(path, MeasuredBlock, MEASURED).finished == {}
    assert json.loads(path.read_text())["measured"].items() >= MEASURED.items()


def test_a_run_of_other_code_is_another_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.journal"
    Journal(path, MeasuredBlock, MEASURED).close()
    monkeypatch.setattr(journal_module, "commit", lambda: "0123456-dirty")
    with pytest.raises(UserError, match=r"another comparison \(code differ"):
        Journal(path, MeasuredBlock, MEASURED)


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    first = Journal(path, MeasuredBlock, MEASURED)
    with pytest.raises(UserError, match="is in use by another run"):
        Journal(path, MeasuredBlock, MEASURED)
    first.close()
    Journal(path, MeasuredBlock, MEASURED).close()


def test_the_journal_of_another_comparison_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    Journal(path, MeasuredBlock, MEASURED).close()
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"another comparison \(seed differ"):
        Journal(path, MeasuredBlock, {"seed": 2})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "hello\n",
        "hello",
        "[]\n",
        '{"measured": []}\n',
        '{"measured": null}\n',
        '{"measured": {"seed": 1}}\n{"cell": 1}\n',
    ],
)
def test_what_is_no_journal_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(UserError, match="is no journal"):
        Journal(path, MeasuredBlock, MEASURED)
    assert path.read_text() == text
