"""Reading configuration text: no duplicate keys, and YAML, JSON and Python spellings mean the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from foredraft.integration.errors import UserError


class ConfigLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which by itself lets the last of two equal keys win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that occurs twice in one mapping."""
        seen: dict[Any, int] = {}
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
            line = key_node.start_mark.line + 1
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key} is given twice, first on line {seen[key]}", key_node.start_mark
                )
            if isinstance(key, str):
                seen[key] = line
        return super().construct_mapping(node, deep=deep)


def _construct_text(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    """Join the two halves in which JSON escapes characters above U+FFFF."""
    return str(loader.construct_scalar(node)).encode("utf-16", "surrogatepass").decode("utf-16")


ConfigLoader.add_constructor("tag:yaml.org,2002:str", _construct_text)

# JSON writes 1e-3 and Python writes None; PyYAML alone reads both as text.
ConfigLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
ConfigLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^None$"), ["N"])


def parse_yaml(text: str | bytes, source: str) -> Any:
    """The value written in ``text``.

    Raises:
        UserError: it is not YAML; names ``source`` and the line.
    """
    try:
        return yaml.load(text, Loader=ConfigLoader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{source}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{source}: not YAML: {_first_line(error)}") from None
    except RecursionError:
        raise UserError(f"{source}: nested too deeply") from None


def parse_json(text: str | bytes, source: str) -> Any:
    """The same for JSON files, of which PyYAML does not read all (tabs)."""
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        raise UserError(f"{source}, line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"{source}: {_first_line(error)}") from None
    except RecursionError:
        raise UserError(f"{source}: nested too deeply") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is given twice")
    return values


def read_mapping(path: Path) -> dict[str, Any]:
    """The options written in a YAML or JSON file.

    Raises:
        UserError: no such file, not YAML, empty, or not a mapping of option names.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"config file {path}: {error.strerror}") from None
    parse = parse_json if path.suffix == ".json" else parse_yaml
    values = parse(text, f"file {path.name}")
    if values is None:
        raise UserError(f"file {path.name}: is empty; needs a mapping of options (key: value)")
    if not isinstance(values, dict):
        raise UserError(f"file {path.name}: needs a mapping of options (key: value), not {values!r:.60}")
    _check_keys(values, path.name)
    return values


def _check_keys(values: dict[Any, Any], file_name: str) -> None:
    for key, value in values.items():
        for name in (key, *value) if isinstance(value, dict) else (key,):
            if not isinstance(name, str):
                raise UserError(f"file {file_name}: option names are texts (got {name!r})")
        if "." in key:
            section, _, inner = key.partition(".")
            raise UserError(f"file {file_name}: {key}: write it as a section: {section}: {{{inner}: ...}}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
