"""Flags of a command that has many: written as the fields of a dataclass."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from foredraft.integration.config_sources import LoadedConfig


def with_options(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command a flag for each field of a dataclass; it receives them as its second parameter.

    Goes under ``with_config``, on a command of two parameters: the ``LoadedConfig`` and the dataclass, whose
    annotations are ``Annotated[kind, typer.Option(...)]``. A field without a default is a flag that must be
    given.
    """
    kinds = get_type_hints(options, include_extras=True)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(loaded: LoadedConfig, **given: Any) -> None:
            command(loaded, options(**given))

        own = inspect.signature(command, eval_str=True)
        flags = [_flag(field, kinds[field.name]) for field in dataclasses.fields(options)]
        first = next(iter(own.parameters.values()))
        run.__signature__ = own.replace(parameters=[first, *flags])  # type: ignore[attr-defined]
        return run

    return decorate


def _flag(field: dataclasses.Field[Any], kind: Any) -> inspect.Parameter:
    factory = field.default_factory
    default = field.default if factory is dataclasses.MISSING else factory()
    if default is dataclasses.MISSING:
        default = inspect.Parameter.empty
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
