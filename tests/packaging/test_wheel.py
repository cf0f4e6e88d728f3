"""The wheel, installed where no checkout is, is complete and runs."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it; what the wheel depends on comes from the current one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(pip, check=True)
    (wheel,) = folder.glob("foredraft-*.whl")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], check=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # A path added this way brings the packages of the current environment, not its editable installs.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python


def run(python: Path, *arguments: str) -> str:
    done = subprocess.run(
        [python, *arguments], capture_output=True, text=True, cwd=python.parent, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_and_data_file_is_in_the_wheel(python: Path) -> None:
    parts = ("proposers", "verifier", "scheduler", "integration")
    names = [
        path.relative_to(ROOT)
        for part in parts
        for pattern in ("*.py", "*.jsonl", "*.safetensors")
        for path in (ROOT / part).rglob(pattern)
    ]
    code = "import foredraft.verifier, pathlib; print(pathlib.Path(foredraft.verifier.__file__).parents[1])"
    installed = Path(run(python, "-c", code).strip())
    assert str(installed).startswith(str(python.parents[1])), "the wheel's own files are used"
    assert [str(name) for name in names if not (installed / name).exists()] == []


def test_parts_are_importable_under_the_namespace_only(python: Path) -> None:
    """``proposers`` and ``foredraft.proposers`` are never both importable: one class must not exist twice."""
    parts = ("proposers", "verifier", "scheduler", "integration")
    code = f"import importlib.util as u; print([n for n in {parts} if u.find_spec(n)])"
    assert run(python, "-I", "-c", code).strip() == "[]"
    assert run(python, "-I", "-c", "import foredraft.proposers, foredraft.integration.cli") == ""


def test_the_command_runs(python: Path) -> None:
    command = str(python.parent / "foredraft")
    assert "generate" in run(python, command, "--help")
    assert "ngram" in run(python, command, "config", "show")


@pytest.mark.model
def test_it_generates(python: Path) -> None:
    generate = [str(python.parent / "foredraft"), "generate", "Say hello.", "--max-tokens", "8"]
    assert run(python, *generate).strip()
    assert run(python, *generate, "--proposer", "draft").strip(), "the draft is in the wheel"
    assert run(python, *generate, "--proposer", "early_exit").strip(), "so is the exit head"
