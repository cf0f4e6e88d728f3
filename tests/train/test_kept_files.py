"""The small files beside a training: damaged ones are named or made again."""

import errno
from pathlib import Path
from typing import Any

import pytest

from foredraft.integration.align.counts import AcceptanceCounts
from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.train import end_to_end
from foredraft.integration.train.end_to_end import EndToEnd, measured_end_to_end
from foredraft.integration.train.files import writing_to
from foredraft.integration.train.stage_times import StageTimes
from foredraft.integration.train.train_log import LogEntry, TrainLog

ENTRIES = [LogEntry(step, step * 10, None, 0.0, 0.1, 0.2) for step in (0, 4, 8)]


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    log = TrainLog(tmp_path / "train_log.jsonl", 0)
    for entry in ENTRIES:
        log.add(entry)
    return tmp_path / "train_log.jsonl"


def test_the_log_goes_on_from_the_step_of_the_checkpoint(log_file: Path) -> None:
    assert TrainLog(log_file, 8).entries == ENTRIES
    assert TrainLog(log_file, 5).entries == ENTRIES[:2]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:-5],
        lambda text: b"\xff" + text,
        lambda text: b'{"step": 0}\n' + text,
        lambda text: b"[" * 100_000,
        lambda text: text.split(b"\n", 1)[1],
    ],
    ids=["empty", "cut", "no text", "no entry", "nested", "without its first line"],
)
def test_a_damaged_log_is_refused_by_name_only_behind_a_checkpoint(log_file: Path, damage: Any) -> None:
    log_file.write_bytes(damage(log_file.read_bytes()))
    with pytest.raises(
        UserError, match=r"train_log\.jsonl is damaged; restore it, or delete it and checkpoint/"
    ):
        TrainLog(log_file, 4)
    assert TrainLog(log_file, 0).entries == []


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"data": "long"}'])
def test_damaged_times_are_counted_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(content)
    times = StageTimes(path)
    with times.stage("data"):
        pass
    assert list(StageTimes(path).seconds) == ["data"]


@pytest.mark.parametrize("content", ["", "{", '{"greedy": 1}'])
def test_a_damaged_measurement_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    toy_target: Any = object()
    counts = AcceptanceCounts(num_prompts=4)
    measured = EndToEnd(counts, counts, costs=None, speedups={1: 1.5})
    monkeypatch.setattr(end_to_end, "_measure", lambda *_: measured)
    (tmp_path / "measured-7.json").write_text(content)
    assert measured_end_to_end(tmp_path, Config(), lambda: toy_target, [], 7) == measured
    assert measured_end_to_end(tmp_path, Config(), pytest.fail, [], 7) == measured


def test_only_a_full_disk_needs_room(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Permission denied$"), writing_to(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(UserError, match="make room"), writing_to(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
