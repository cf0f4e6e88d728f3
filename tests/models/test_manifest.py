"""Damage of a finished folder is noticed, and its contents are read only when there is reason to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from foredraft.integration.models import manifest
from foredraft.integration.models.manifest import MANIFEST, find_fault, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "weights").write_bytes(b"0123456789")
    (tmp_path / "config").write_bytes(b"{}")
    write_manifest(tmp_path, "source 1")
    return tmp_path


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose contents were read."""
    names: list[str] = []
    real = manifest._sha256
    monkeypatch.setattr(manifest, "_sha256", lambda path: names.append(path.name) or real(path))
    return names


def change_quietly(path: Path, content: bytes) -> None:
    """Change contents behind the same size and time."""
    stat = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_intact_folder_is_not_read(folder: Path, hashed: list[str]) -> None:
    assert find_fault(folder, "source 1") is None
    assert hashed == []


def test_missing_folder(tmp_path: Path) -> None:
    assert find_fault(tmp_path / "absent", None) == "missing"


def test_other_source_is_outdated_unless_any_will_do(folder: Path) -> None:
    assert find_fault(folder, "source 2") == "made from source 1, not source 2"
    assert find_fault(folder, None) is None


def test_cut_file(folder: Path) -> None:
    (folder / "weights").write_bytes(b"01234")
    assert find_fault(folder, "source 1") == "weights has 5 bytes, not 10"


def test_lost_file(folder: Path) -> None:
    (folder / "config").unlink()
    assert find_fault(folder, "source 1") == "config: No such file or directory"


def test_changed_file_of_the_same_size(folder: Path) -> None:
    (folder / "weights").write_bytes(b"012345678X")
    os.utime(folder / "weights", ns=(1, 1))
    assert find_fault(folder, "source 1") == "weights has changed"


def test_change_behind_the_same_time_needs_verify(folder: Path) -> None:
    change_quietly(folder / "weights", b"012345678X")
    assert find_fault(folder, "source 1") is None
    assert find_fault(folder, "source 1", verify=True) == "weights has changed"


def test_touched_file_is_read_once(folder: Path, hashed: list[str]) -> None:
    os.utime(folder / "weights", ns=(1, 1))
    assert find_fault(folder, "source 1") is None
    assert find_fault(folder, "source 1") is None
    assert hashed == ["weights"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"source": "source 1"}', '{"source": "source 1", "files": {"a": {}}}']
)
def test_unreadable_manifest(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    assert find_fault(folder, "source 1") == f"{MANIFEST} is unreadable"
