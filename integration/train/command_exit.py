"""``foredraft train exit``: let the first layers of a target draft for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foredraft.integration.cli_options import with_config
from foredraft.integration.config import Config
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError
from foredraft.integration.paths import user_path
from foredraft.integration.train.options import Out, with_settings
from foredraft.integration.train.settings import ExitSettings

SWEEP_TOKENS = 200_000

Sweep = Annotated[
    str | None,
    typer.Option(metavar="LAYERS", help="Try several exit layers, such as 1,2,4, and say which pays best."),
]
SweepTokens = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"With --sweep: tokens to train on per layer, not --train-tokens (default: {SWEEP_TOKENS}).",
    ),
]


@with_config
@with_settings(ExitSettings)
def train_exit_command(
    loaded: LoadedConfig,
    settings: ExitSettings,
    out: Out,
    sweep: Sweep = None,
    sweep_tokens: SweepTokens = None,
) -> None:
    """Train an exit head for --model: what turns the state after its first layers into a guess.

    The target itself stays as it is. It writes the training text itself unless
    --data is given: JSONL, each line {"text": ...}, {"messages": [...]},
    {"prompt": ...} or {"turns": [...]}; what ends with the user it answers.
    The seed is that of --seed. A new folder may be given written.jsonl,
    given.jsonl and features/ of another training for the same target.

    Ctrl-C ends the run; the same command goes on where it was.
    """
    out = user_path(out, "--out")
    if sweep is not None:
        _sweep(out, sweep, sweep_tokens or SWEEP_TOKENS, settings, loaded.config)
        return
    if sweep_tokens is not None:
        raise UserError(f"--sweep-tokens: goes with --sweep only (got {sweep_tokens}); see --train-tokens")
    from foredraft.integration.train.card import print_outcome
    from foredraft.integration.train.run import train

    print_outcome(train(out, settings, loaded.config), settings, out)


def _sweep(out: Path, layers: str, num_tokens: int, settings: ExitSettings, config: Config) -> None:
    if settings.exit_layer is not None:
        raise UserError(
            f"--exit-layer: goes without --sweep, which tries several (got {settings.exit_layer})"
        )
    from rich.console import Console

    from foredraft.integration.train.sweep import parse_layers, run_sweep
    from foredraft.integration.train.sweep_table import print_sweep

    settings = settings.model_copy(update={"train_tokens": num_tokens})
    print_sweep(run_sweep(out, parse_layers(layers), settings, config), Console())
