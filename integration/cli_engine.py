"""``--engine`` and ``--vllm``: which engine serves a command, and what more vLLM is told."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import typer

from foredraft.integration.config_text import parse_yaml
from foredraft.integration.errors import UserError

EngineName = Literal["embedded", "vllm"]

NO_OPTIONS: list[str] = []

EngineOption = Annotated[
    EngineName, typer.Option("--engine", help="What serves: our own engine, or a vLLM that is installed.")
]
VllmOptions = Annotated[
    list[str],
    typer.Option(
        "--vllm",
        metavar="KEY=VALUE",
        help="With --engine vllm: an option of vLLM's engine, such as enforce_eager=true. May be repeated.",
    ),
]


def checked_vllm_options(engine: EngineName, settings: Sequence[str]) -> dict[str, Any]:
    """What ``--vllm`` says, where vLLM is to serve.

    Raises:
        UserError: not KEY=VALUE, another engine, or no vLLM.
    """
    if engine != "vllm":
        if settings:
            raise UserError(f"--vllm: means nothing without --engine vllm (got {settings[0]!r})")
        return {}
    require_vllm()
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not name:
            raise UserError(f"--vllm: needs KEY=VALUE, such as enforce_eager=true (got {setting!r})")
        values[name.replace("-", "_")] = parse_yaml(text, f"--vllm {name}")
    return values


def require_vllm() -> None:
    """Raises ``UserError`` where vLLM is not installed."""
    if find_spec("vllm") is None:
        raise UserError("vllm: is not installed; pip install foredraft[vllm]")
