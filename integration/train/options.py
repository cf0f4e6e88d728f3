"""The flags of ``foredraft train``, made from the schema of its settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.train.settings import TrainSettings

Out = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Where everything goes. A rerun with the same flags goes on there."),
]


def with_settings(model: type[TrainSettings]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each field of ``model``; it receives them as its second parameter.

    The seed has no flag of its own, it is that of --seed. Goes under ``with_config``, on a command whose
    first two parameters take the ``LoadedConfig`` and the settings.
    """
    names = [name for name in _in_order(model) if name != "seed"]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        loaded_parameter, _, *own = signature.parameters.values()

        @functools.wraps(command)
        def run(loaded: LoadedConfig, **given: Any) -> None:
            values = {name: given.pop(name) for name in names} | {"seed": loaded.config.sampling.seed}
            command(loaded, _settings(model, values), **given)

        flags = [_flag(name, model.model_fields[name]) for name in names]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + flags
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[loaded_parameter, *parameters]
        )
        return run

    return decorate


def _in_order(model: type[TrainSettings]) -> list[str]:
    """The fields as the help shows them: what is the model's own goes first."""
    return list(dict.fromkeys([*model.__annotations__, *model.model_fields]))


def _settings(model: type[TrainSettings], values: dict[str, Any]) -> TrainSettings:
    given = {name: value for name, value in values.items() if value is not None}
    if "data" in given:
        given["data"] = tuple(given["data"])
    return model(**given)


def _flag(name: str, field: FieldInfo) -> inspect.Parameter:
    kind, metavar = _kind(field.annotation)
    shown = "" if field.default in (None, ()) else f" (default: {field.default})"
    option = typer.Option(help=f"{field.description}{shown}", show_default=False, metavar=metavar)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _kind(annotation: Any) -> tuple[Any, str | None]:
    """What typer parses, and how the help shows it; choices are left to the model, which names the flag."""
    if get_origin(annotation) is Literal:
        return str | None, "|".join(get_args(annotation))
    if get_origin(annotation) is tuple:
        return list[str] | None, "FILE"
    return annotation | None, None
