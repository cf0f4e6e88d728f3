"""The configuration flags that commands share, written once and made from the schema of ``Config``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import typer

from foredraft.integration.config import Config, section_model
from foredraft.integration.config_sources import FLAG_FIELDS, flag_name, load_config
from foredraft.integration.config_text import parse_yaml
from foredraft.integration.errors import UserError

PANEL = "Configuration (flags go before the file, the file before the defaults)"

CONFIG_HELP = "YAML file with options; configs/reference.yaml lists them all."
SET_HELP = (
    "Any other option, the value in YAML: --set ngram.max_n=5 --set 'sampling.stop=[END]'. May be repeated."
)


def with_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all configuration flags; it receives the result as its first parameter.

    Write a command with its own parameters only, the first one taking the ``LoadedConfig``::

        @with_config
        def generate(loaded: LoadedConfig, prompt: Annotated[str, typer.Argument(help="...")]) -> None:
            import torch  # heavy imports go inside, so that --help stays quick

        app.command()(generate)  # in cli.py

    ``LoadedConfig`` must be imported at run time, not under ``TYPE_CHECKING``: typer reads the annotations.
    """
    return with_flags(FLAG_FIELDS, "--config", "-c")(command)


def with_flags(
    fields: Sequence[str], *file_flags: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As ``with_config``, for a command that leaves some flags to someone else.

    Args:
        fields: of ``FLAG_FIELDS``, those with a flag of their own.
        file_flags: the spellings of the flag that names the file.
    """

    def give(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())[1:]
        parameters = [
            *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own),
            *_flag_parameters(fields, file_flags),
        ]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            path, settings = given.pop("config_file"), given.pop("settings")
            flags = {option: given.pop(_parameter_name(option)) for option in fields}
            command(load_config(path, _overrides(flags, settings or ())), **given)

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        return run

    return give


def _flag_parameters(fields: Sequence[str], file_flags: Sequence[str]) -> list[inspect.Parameter]:
    file = typer.Option(*file_flags, metavar="FILE", help=CONFIG_HELP, rich_help_panel=PANEL)
    more = typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP, rich_help_panel=PANEL)
    return [
        _parameter("config_file", Annotated[Path | None, file]),
        *(_flag_parameter(option) for option in fields),
        _parameter("settings", Annotated[list[str] | None, more]),
    ]


def _flag_parameter(option: str) -> inspect.Parameter:
    section, _, leaf = option.rpartition(".")
    field = (section_model(section) or Config).model_fields[leaf]
    shown = "" if field.default is None else f" (default: {field.default})"
    flag = typer.Option(flag_name(option), help=f"{field.description}{shown}", rich_help_panel=PANEL)
    # Typer knows no unions: "auto" or a number comes in as text, and is read as YAML.
    optional = str | None if _is_mixed(option) else field.annotation | None  # type: ignore[operator]
    return _parameter(_parameter_name(option), Annotated[optional, flag])


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _parameter_name(option: str) -> str:
    return option.rpartition(".")[2]


def _is_mixed(option: str) -> bool:
    """Whether an option takes values of more than one type."""
    section, _, leaf = option.rpartition(".")
    annotation = (section_model(section) or Config).model_fields[leaf].annotation
    return len(set(get_args(annotation)) - {NoneType}) > 1


def _overrides(flags: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    overrides = {
        option: parse_yaml(value, flag_name(option)) if _is_mixed(option) else value
        for option, value in flags.items()
        if value is not None
    }
    for setting in settings:
        option, equals, text = setting.partition("=")
        option = option.strip()
        if not equals or not option:
            raise UserError(f"--set: needs KEY=VALUE, such as ngram.max_n=5 (got {setting!r})")
        if option in overrides:
            raise UserError(f"--set: {option} is given twice on the command line")
        overrides[option] = parse_yaml(text, f"--set {option}")
    return overrides
