import json
import os
from pathlib import Path

import pytest

from foredraft.integration.compare.results.writing import check_writable, write_json
from foredraft.integration.errors import UserError


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"run": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"run": float("nan")})
    assert json.loads(path.read_text()) == {"run": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """It used to be replaced by a file, and so was /dev/full."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    check_writable(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_json(path, {"run": 1})
        assert json.loads(os.read(reader, 1000)) == {"run": 1}
    finally:
        os.close(reader)
    assert path.is_fifo()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    write_json(tmp_path / "link.json", {"run": 1})
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == {"run": 1}


@pytest.mark.parametrize(("name", "match"), [("missing/a.json", "does not exist"), ("..", "is a folder")])
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, name: str, match: str) -> None:
    with pytest.raises(UserError, match=f"--json: .*{match}"):
        check_writable(tmp_path / name)
    with pytest.raises(UserError, match=f"--html: .*{match}"):
        check_writable(tmp_path / name, "--html")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(UserError, match=r"--json: needs the name of a file \(got ''"):
        check_writable(Path(""))


def test_a_folder_that_is_not_writable_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        check_writable(tmp_path / "a.json")


def test_the_writability_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []
