"""A cached folder is there whole or not at all: failures, kills and two processes at once."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.models.cache import cache_root, cached_folder

BUILD = """
import sys, time
from pathlib import Path
from foredraft.integration.models.cache import cached_folder

def build(folder):
    print("building", flush=True)
    (folder / "half").write_text("x")
    time.sleep(float(sys.argv[1]))
    (folder / "whole").write_text("x")

print(sorted(path.name for path in cached_folder("thing", "v1", build).glob("[hw]*")))
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def start(seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILD, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def build_one(folder: Path) -> None:
    (folder / "file").write_text("content")


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_root_is_the_users_cache_unless_set(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    assert cache_root() == root
    monkeypatch.setenv("FOREDRAFT_CACHE", "")
    assert cache_root().name == "foredraft"


def test_built_once(root: Path) -> None:
    folder = cached_folder("thing", "v1", build_one)
    assert (folder / "file").read_text() == "content"
    assert cached_folder("thing", "v1", lambda _: pytest.fail("built again")) == folder
    assert names(root) == {"thing", "thing.lock"}


def test_other_source_is_built_again(capsys: pytest.CaptureFixture[str]) -> None:
    cached_folder("thing", "v1", build_one)
    folder = cached_folder("thing", "v2", lambda folder: (folder / "new").write_text("n"))  # type: ignore[arg-type, return-value]
    assert not (folder / "file").exists()
    assert (folder / "new").exists()
    assert "made from v1, not v2" in capsys.readouterr().err


def test_damage_is_repaired_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    folder = cached_folder("thing", "v1", build_one)
    (folder / "file").write_text("cut")
    cached_folder("thing", "v1", build_one)
    assert (folder / "file").read_text() == "content"
    assert "file has 3 bytes, not 7" in capsys.readouterr().err


def test_verify_repairs_what_size_and_time_hide() -> None:
    folder = cached_folder("thing", "v1", build_one)
    stat = (folder / "file").stat()
    (folder / "file").write_text("CONTENT")
    os.utime(folder / "file", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    cached_folder("thing", "v1", build_one, verify=True)
    assert (folder / "file").read_text() == "content"


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), UserError("no")])
def test_failed_build_leaves_nothing(root: Path, error: BaseException) -> None:
    def build(folder: Path) -> None:
        build_one(folder)
        raise error

    with pytest.raises(type(error)):
        cached_folder("thing", "v1", build)
    assert names(root) == {"thing.lock"}
    assert (cached_folder("thing", "v1", build_one) / "file").exists()


def test_full_disk_is_a_user_error(root: Path) -> None:
    def build(folder: Path) -> None:
        build_one(folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match="No space left on device; set FOREDRAFT_CACHE"):
        cached_folder("thing", "v1", build)
    assert names(root) == {"thing.lock"}


def test_unusable_cache_folder_is_a_user_error(root: Path) -> None:
    root.write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"cache folder .*cache: .*; set FOREDRAFT_CACHE"):
        cached_folder("thing", "v1", build_one)


def test_error_of_a_library_is_not_blamed_on_the_cache() -> None:
    def build(folder: Path) -> None:
        raise OSError("bad contents")

    with pytest.raises(OSError, match="bad contents"):
        cached_folder("thing", "v1", build)


def test_killed_build_leaves_nothing_in_use(root: Path) -> None:
    with start(60) as builder:
        assert builder.stdout is not None
        builder.stdout.readline()
        builder.send_signal(signal.SIGKILL)
    assert "thing" not in names(root)
    assert any(name.startswith(".thing.") for name in names(root)), "killed too late to show anything"
    cached_folder("thing", "v1", build_one)
    assert names(root) == {"thing", "thing.lock"}


def test_second_process_waits_and_uses_the_result() -> None:
    with start(2) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with start(0) as second:
            out, err = second.communicate(timeout=60)
        assert "another process is preparing thing" in err
        assert out == "['half', 'whole']\n", "the second built too, or saw half a folder"


def test_waiting_process_builds_when_the_first_is_killed() -> None:
    with start(60) as first:
        assert first.stdout is not None
        first.stdout.readline()
        with start(0) as second:
            assert second.stderr is not None
            second.stderr.readline()
            time.sleep(0.2)
            first.send_signal(signal.SIGKILL)
            out, _ = second.communicate(timeout=60)
    assert out == "building\n['half', 'whole']\n"
