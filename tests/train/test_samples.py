import json
from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.train.pieces import cut
from foredraft.integration.train.samples import Sample, append_samples, read_samples

FIRST = Sample(0, [1, 2, 3], prompt_len=2, loss_start=1)
SECOND = Sample(7, [4, 5], prompt_len=1, loss_start=1)


def test_samples_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    append_samples(path, [FIRST])
    append_samples(path, [SECOND])
    assert read_samples(path) == [FIRST, SECOND]
    assert read_samples(tmp_path / "none.jsonl") == []


def test_a_half_written_last_line_is_cut_off_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    append_samples(path, [FIRST, SECOND])
    path.write_bytes(path.read_bytes()[:-5])
    assert read_samples(path) == [FIRST]
    append_samples(path, [SECOND])
    assert read_samples(path) == [FIRST, SECOND]


def test_a_file_that_ends_in_its_first_sample_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    append_samples(path, [FIRST])
    for length in (0, 4, 20):
        path.write_bytes(path.read_bytes()[:length])
        assert read_samples(path) == []
        assert path.read_bytes() == b""
        append_samples(path, [FIRST])


GOOD = {"index": 1, "token_ids": [1, 2, 3], "prompt_len": 2, "loss_start": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        pytest.param("[" * 100_000, "nested too deeply", id="nested"),
        (GOOD | {"index": "1"}, "not a sample"),
        (GOOD | {"index": -1}, "not a sample"),
        (GOOD | {"token_ids": [1, 2.0, 3]}, "not a sample"),
        (GOOD | {"token_ids": 3}, "not a sample"),
        (GOOD | {"prompt_len": 4}, "not a sample"),
        (GOOD | {"loss_start": 3}, "not a sample"),
        (GOOD | {"text": ""}, "not a sample"),
        ([1], "not a sample"),
        ({"text": "mine"}, "not a sample"),
    ],
)
def test_a_line_that_is_no_sample_is_named_and_stays(tmp_path: Path, line: object, reason: str) -> None:
    path = tmp_path / "samples.jsonl"
    append_samples(path, [FIRST])
    with path.open("a") as file:
        file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    append_samples(path, [SECOND])
    before = path.read_bytes()
    with pytest.raises(UserError, match=rf"samples\.jsonl, line 2: .*{reason}"):
        read_samples(path)
    assert path.read_bytes() == before


def test_long_texts_are_cut_and_keep_their_places() -> None:
    pieces = cut([Sample(41, list(range(10)), prompt_len=5, loss_start=2)], max_tokens=4)
    assert [piece.token_ids for piece in pieces] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [piece.loss_start for piece in pieces] == [2, 1, 1]
    assert [piece.response_start for piece in pieces] == [4, 1, 1]
    assert all(piece.held_out for piece in pieces)


def test_a_piece_without_anything_to_learn_is_left_out() -> None:
    pieces = cut([Sample(1, list(range(9)), prompt_len=4, loss_start=4)], max_tokens=4)
    assert [piece.token_ids for piece in pieces] == [[4, 5, 6, 7]]
