"""Rules of the layout: which way imports point, and that an editable install shadows nothing."""

import ast
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ORDER = ["verifier", "proposers", "scheduler", "integration"]
FORBIDDEN = {
    "verifier": {"transformers", "vllm", "ray", "pydantic"},
    "proposers": {"transformers", "vllm", "ray", "pydantic"},
    "scheduler": {"transformers", "vllm"},
    "integration": set(),
}


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("part", ORDER)
def test_imports_point_one_way(part: str) -> None:
    above = {f"foredraft.{name}" for name in ORDER[ORDER.index(part) + 1 :]}
    for path in (ROOT / part).rglob("*.py"):
        for module in imported_modules(path):
            assert not any(module == name or module.startswith(name + ".") for name in above), (
                f"{path}: {module}"
            )
            assert module.split(".")[0] not in FORBIDDEN[part], f"{path}: {module}"


def test_only_the_namespace_is_installed(tmp_path: Path) -> None:
    code = f"import importlib.util as u; print([n for n in {ORDER} if u.find_spec(n)])"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    assert importlib.util.find_spec("foredraft.verifier") is not None


def test_plain_ngram_needs_no_optional_dependency() -> None:
    heavy = {"vllm", "ray", "matplotlib"}
    code = f"import sys, foredraft.integration.embedded.build; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_package_is_listed() -> None:
    """An editable install finds what is not listed; a wheel does not have it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    folders = {path.parent for part in ORDER for path in (ROOT / part).rglob("__init__.py")}
    found = {"foredraft." + ".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert found <= set(listed)
