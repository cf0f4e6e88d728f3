"""Configurations that differ in more than the proposer: ``--variant``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foredraft.integration.config import BUILTIN_PROPOSERS, Config
from foredraft.integration.config_sources import with_values
from foredraft.integration.config_text import parse_yaml, read_mapping
from foredraft.integration.errors import UserError

BASELINE = "none"
"""Plain decoding: what everything is compared with."""

FORM = "NAME:key=value,... or NAME=FILE"

SHARED_OPTIONS = ("model", "dtype", "device", "sampling", "engine")
"""What all must have in common: the same target serves the same requests, else no ratio means anything."""


def parse_variants(texts: Sequence[str], base: Config) -> dict[str, Config]:
    """ "fast:proposer=ngram,num_draft_tokens=3" or "fast=fast.yaml", on top of ``base``.

    Raises:
        UserError: not of this form, a name twice, an option that is unknown or must be shared.
    """
    variants: dict[str, Config] = {}
    for text in texts:
        name, values = _parse(text)
        if name == BASELINE:
            raise UserError(f"--variant: the name {name!r} is taken; {BASELINE} is plain decoding")
        if name in variants:
            raise UserError(f"--variant: the name {name!r} is given twice (got {text!r}); each needs its own")
        variants[name] = _variant(name, values, base)
        if name in BUILTIN_PROPOSERS and variants[name].proposer != name:
            raise UserError(
                f"--variant: the name {name!r} is that of a built-in proposer, and the variant's is "
                f"{variants[name].proposer!r}; choose another name"
            )
    return variants


def _parse(text: str) -> tuple[str, Mapping[str, Any]]:
    form = re.fullmatch(r"([A-Za-z0-9_][\w.-]*)([:=])(.+)", text.strip())
    if form is None:
        raise UserError(f"--variant: needs {FORM} (got {text!r})")
    name, kind, rest = form.groups()
    if kind == "=":
        return name, read_mapping(Path(rest))
    return name, dict(_setting(name, setting) for setting in _settings(rest))


def _settings(text: str) -> list[str]:
    """Split at commas, but for those in the brackets of a list."""
    return re.split(r",(?![^\[]*\])", text)


def _setting(name: str, setting: str) -> tuple[str, Any]:
    option, equals, value = (part.strip() for part in setting.partition("="))
    if not equals or not option:
        raise UserError(f"--variant {name}: needs key=value, such as num_draft_tokens=3 (got {setting!r})")
    return option, parse_yaml(value, f"--variant {name}: {option}")


def _variant(name: str, values: Mapping[str, Any], base: Config) -> Config:
    try:
        config = with_values(base, values)
    except UserError as error:
        raise UserError(f"--variant {name}: {error}") from None
    for option in SHARED_OPTIONS:
        if getattr(config, option) != getattr(base, option):
            shared = ", ".join(SHARED_OPTIONS)
            raise UserError(
                f"--variant {name}: {option} must be the same for all; {shared} are set once, by the flags"
            )
    return config
