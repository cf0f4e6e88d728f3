"""The flags of ``foredraft serve --engine embedded``, named as vLLM's where vLLM has them."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Collection, Sequence
from typing import NoReturn

from foredraft.integration.config import Config
from foredraft.integration.config_sources import FLAG_FIELDS, LoadedConfig, flag_name, with_values
from foredraft.integration.config_text import parse_yaml
from foredraft.integration.errors import UserError
from foredraft.integration.server.settings import ServerSettings


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every mistake of the user."""
        raise UserError(message)


def parse_flags(given: Sequence[str], taken: Collection[str]) -> argparse.Namespace:
    """The flags; those of the configuration under their dotted names, in YAML.

    Args:
        taken: options of the configuration whose flags someone else has read.

    Raises:
        UserError: a flag or value that cannot be.
    """
    parser = _Parser(prog="foredraft serve --engine embedded", allow_abbrev=False, add_help=False)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_port, default=8000)
    parser.add_argument("--api-key", nargs="+", default=[])
    parser.add_argument("--api-key-env")
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--max-body-mb", type=_amount, default=8.0)
    parser.add_argument("--max-open-requests", type=int, default=1024)
    parser.add_argument("--drain-timeout", type=_amount, default=30.0)
    for option in FLAG_FIELDS:
        if option not in taken:
            parser.add_argument(flag_name(option), dest=option)
    return parser.parse_args(list(given))


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"should be a port from 1 to 65535 (got {text!r})")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 < amount < math.inf:
        raise argparse.ArgumentTypeError(f"should be a number above 0 (got {text!r})")
    return amount


def with_flags_of(loaded: LoadedConfig, flags: argparse.Namespace) -> tuple[Config, list[str]]:
    """The configuration that the flags leave, and which of its options were given anywhere.

    Raises:
        UserError: a value is refused, or the model is named twice.
    """
    values = {
        option: parse_yaml(text, flag_name(option))
        for option in FLAG_FIELDS
        if (text := getattr(flags, option, None)) is not None
    }
    if flags.name is not None:
        if "model" in values:
            raise UserError("--model: is given twice, as a flag and by itself")
        values["model"] = flags.name
    given = [option for option, origin in loaded.origins.items() if origin != "default"]
    return with_values(loaded.config, values), [*given, *values]


def server_settings(config: Config, given: Collection[str], flags: argparse.Namespace) -> ServerSettings:
    """What the server is told.

    Args:
        given: options of the configuration that someone gave; those of ``sampling`` are requests' defaults.

    Raises:
        UserError: a value that cannot be.
    """
    sampling = [option.removeprefix("sampling.") for option in given if option.startswith("sampling.")]
    return ServerSettings(
        model_names=tuple(flags.served_model_name or [config.model]),
        proposer=config.proposer,
        sampling={name: getattr(config.sampling, name) for name in sampling},
        api_keys=(*flags.api_key, *_key_of(flags.api_key_env)),
        max_body_bytes=int(flags.max_body_mb * 2**20),
        max_open_requests=flags.max_open_requests,
    )


def _key_of(variable: str | None) -> list[str]:
    if variable is None:
        return []
    key = os.environ.get(variable)
    if not key:
        raise UserError(f"--api-key-env: the environment variable {variable!r} is not set")
    return [key]
