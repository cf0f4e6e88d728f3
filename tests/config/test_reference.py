"""configs/: the reference lists the whole schema, and every file is valid.

Print the text the reference must have with ``python tests/config/test_reference.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from foredraft.integration.config import Config, section_model
from foredraft.integration.config_sources import load_config

CONFIGS = Path(__file__).parents[2] / "configs"

HEADER = """\
# Every option with its default. Copy what you want to change; leave out the rest.
# Made from the schema: python tests/config/test_reference.py > configs/reference.yaml
"""


def reference_text() -> str:
    return HEADER + "".join(_lines(Config, ""))


def _lines(model: type[BaseModel], indent: str) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        section = section_model(name) if model is Config else None
        lines.append(f"\n{indent}# {field.description}\n")
        if section:
            lines += [f"{indent}{name}:\n", *_lines(section, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_as_yaml(field.default)}\n")
    return lines


def _as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True).partition("\n")[0]


def test_reference_is_the_schema() -> None:
    assert (CONFIGS / "reference.yaml").read_text() == reference_text()


def test_reference_sets_every_option_to_its_default() -> None:
    loaded = load_config(CONFIGS / "reference.yaml", {})
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"file reference.yaml"}


OTHER_SCHEMAS = ("cluster-", "kuberay", "ray-")


def config_files() -> list[Path]:
    return sorted(path for path in CONFIGS.glob("*.yaml") if not path.name.startswith(OTHER_SCHEMAS))


@pytest.mark.parametrize("path", config_files(), ids=lambda path: path.stem)
def test_shipped_file_is_valid(path: Path) -> None:
    load_config(path, {})


if __name__ == "__main__":
    print(reference_text(), end="")
