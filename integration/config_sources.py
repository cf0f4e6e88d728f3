"""Where configuration values come from: defaults, then a YAML file, then flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from foredraft.integration.config import Config, leaf_values, section_model
from foredraft.integration.config_text import read_mapping
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import describe_fault

FLAG_FIELDS = (
    "model",
    "dtype",
    "device",
    "proposer",
    "num_draft_tokens",
    "verification_rule",
    "sampling.temperature",
    "sampling.top_p",
    "sampling.top_k",
    "sampling.min_p",
    "sampling.seed",
    "sampling.max_tokens",
    "engine.max_num_seqs",
    "engine.max_model_len",
    "engine.kv_cache_memory_gb",
    "engine.forward",
)
"""The options with a flag of their own; the others are reached with ``--set``."""


@dataclass(frozen=True)
class LoadedConfig:
    """A configuration and where each of its values came from.

    Attributes:
        origins: dotted option name -> "default", "file NAME" or "flag --NAME".
    """

    config: Config
    origins: dict[str, str]


def load_config(path: Path | None, overrides: Mapping[str, Any]) -> LoadedConfig:
    """The effective configuration: flags go before the file, the file before the defaults.

    Args:
        overrides: values given as flags, nested like the file or under dotted names ("ngram.min_n").

    Raises:
        UserError: the file cannot be read, or a value is refused; says where the value came from.
    """
    file_values = dict(_leaves(read_mapping(path))) if path else {}
    flag_values = dict(_leaves(overrides))
    given = dict.fromkeys(file_values, f"file {path.name}") if path else {}
    given |= {name: _flag(name) for name in flag_values}
    try:
        config = Config(**_nested(file_values | flag_values))
    except UserError as error:
        raise UserError(_with_origins(error, given)) from None
    origins = {name: given.get(name, "default") for name, _ in leaf_values(config)}
    return LoadedConfig(config, origins)


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """A copy with other values, given nested like in a file or under dotted names ("ngram.min_n").

    Raises:
        UserError: a value is refused.
    """
    current = dict(_leaves(config.model_dump()))
    return Config(**_nested(current | dict(_leaves(values))))


def flag_name(option: str) -> str:
    """The flag of one of ``FLAG_FIELDS``: "sampling.top_p" -> "--top-p"."""
    return "--" + option.rpartition(".")[2].replace("_", "-")


def _flag(option: str) -> str:
    return f"flag {flag_name(option) if option in FLAG_FIELDS else '--set'}"


def _leaves(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if section_model(name) and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", inner_value) for inner, inner_value in value.items())
        else:
            yield name, value


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in leaves.items():
        section, dot, inner = name.partition(".")
        if not dot:
            nested[name] = value
        elif isinstance(nested.setdefault(section, {}), dict):
            nested[section][inner] = value
    return nested


def _with_origins(error: UserError, given: Mapping[str, str]) -> str:
    """The faults of a refused ``Config``, each behind the places its values came from."""
    cause = error.__cause__
    assert isinstance(cause, ValidationError), "Config raises its errors from the validation"
    lines = []
    for fault in cause.errors():
        field = ".".join(str(part) for part in fault["loc"][:2])
        inside = [origin for name, origin in given.items() if not field or f"{name}.".startswith(f"{field}.")]
        places = ", ".join(dict.fromkeys(inside))
        text = describe_fault(fault, Config)
        lines.append(f"{places}: {text}" if places else text)
    return "\n".join(lines)
