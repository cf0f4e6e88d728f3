"""``foredraft train``: a command for each kind of what drafts."""

from __future__ import annotations

import typer

from foredraft.integration.train.command_draft import train_draft_command
from foredraft.integration.train.command_exit import train_exit_command

train_app = typer.Typer(help="Fit what drafts to its target.", no_args_is_help=True)
train_app.command("draft")(train_draft_command)
train_app.command("exit")(train_exit_command)
