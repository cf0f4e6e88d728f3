"""Timing passes before the first run: once, quickly, and without a trace in the cache rows."""

from pathlib import Path

import pytest
from toys import toy_decoder

from foredraft.integration.embedded import calibration


def test_passes_are_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path))
    decoder = toy_decoder(capacity=16)
    measured = calibration.pass_seconds(decoder, "toy")
    assert set(measured) == {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16}
    assert all(seconds > 0 for seconds in measured.values())
    assert decoder.valid_len(0) == 0
    monkeypatch.setattr(calibration, "_measure", None)
    assert calibration.pass_seconds(decoder, "toy") == measured


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 1}', "{"])
def test_a_damaged_file_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path))
    decoder = toy_decoder(capacity=4)
    calibration.pass_seconds(decoder, "toy")
    (file,) = (tmp_path / "pass_times").iterdir()
    file.write_text(content)
    assert set(calibration.pass_seconds(decoder, "toy")) == {1, 2, 3, 4}


def test_another_model_is_timed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path))
    for name in ("one", "two"):
        calibration.pass_seconds(toy_decoder(capacity=4), name)
    assert len(list((tmp_path / "pass_times").iterdir())) == 2
