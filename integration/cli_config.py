"""``foredraft config``: what a run would be told, and by whom."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft.integration.cli_options import with_config
from foredraft.integration.config import leaf_values
from foredraft.integration.config_sources import LoadedConfig

config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)


@config_app.command()
@with_config
def show(
    loaded: LoadedConfig,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Print every option with its value and where the value came from: default, file or flag.

    Piped into another program, each line is: option, tab, value, tab, origin.
    """
    if as_json:
        print(json.dumps({"config": loaded.config.model_dump(mode="json"), "origins": loaded.origins}))
    elif sys.stdout.isatty():
        Console().print(_table(loaded))
    else:
        print("\n".join("\t".join(row) for row in _rows(loaded)))


def _rows(loaded: LoadedConfig) -> Iterator[tuple[str, str, str]]:
    for option, value in leaf_values(loaded.config):
        shown = value if isinstance(value, str) else json.dumps(value)
        yield option, shown, loaded.origins[option]


def _table(loaded: LoadedConfig) -> Table:
    table = Table("option", "value", "from")
    for row in _rows(loaded):
        table.add_row(*(Text(cell) for cell in row), style="dim" if row[2] == "default" else "bold")
    return table
