"""The command line: ``foredraft COMMAND``. Errors of the user leave here as one line and exit code 2."""

from __future__ import annotations

import gc
import sys
from importlib.metadata import version
from typing import Annotated

import typer
from pydantic import ValidationError

from foredraft.integration.align import align
from foredraft.integration.cli_config import config_app
from foredraft.integration.cli_generate import generate
from foredraft.integration.cli_serve import serve
from foredraft.integration.compare import compare
from foredraft.integration.deploy.command_deploy import deploy
from foredraft.integration.deploy.command_down import down
from foredraft.integration.deploy.command_plan import plan
from foredraft.integration.deploy.command_status import status
from foredraft.integration.errors import UserError
from foredraft.integration.simulate import simulate
from foredraft.integration.traffic.command import traffic
from foredraft.integration.train.command import train_app
from foredraft.integration.vllm.doctor import vllm_app

app = typer.Typer(
    name="foredraft",
    help="Faster text generation with the same output: guess several tokens cheaply, check them in one pass.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(generate)
app.command()(compare)
app.command()(align)
app.command()(plan)
app.command()(simulate)
app.command()(traffic)
app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(serve)
app.command()(deploy)
app.command()(status)
app.command()(down)
app.add_typer(config_app, name="config")
app.add_typer(train_app, name="train")
app.add_typer(vllm_app, name="vllm")


def _print_version(asked: bool) -> None:
    if asked:
        print(f"foredraft {version('foredraft')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and end."),
    ] = False,
) -> None:
    pass


def usage_error(error: Exception) -> str | None:
    """What to print where typer cannot read a command line: its line with the value, or the help that it
    raises where no command is named. ``None`` for any other error.

    Its classes have moved from version to version: they are known by their names.
    """
    if not hasattr(error, "format_message"):
        return None
    text = str(error.format_message())
    if type(error).__name__ == "NoArgsIsHelpError":
        return f"{text}\n" if text else ""  # with rich it has been shown by now
    line = " ".join(text.split())
    if isinstance(error.__cause__, ValidationError):
        line = f"{line} (got {error.__cause__.errors()[0]['input']!r})"
    return f"error: {line}\n"


def main() -> None:
    """Run the command line. Exit codes: 0 done, 2 the user's mistake, 130 interrupted."""
    try:
        sys.exit(app(standalone_mode=False))
    except UserError as error:
        print("error: " + "; ".join(str(error).splitlines()), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        text = usage_error(error)
        if text is None:
            raise
        print(text, end="", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    finally:
        # Else the interpreter, ending, searches all of torch for garbage: most of a second. With vLLM it has
        # to: libraries that vLLM loads count what is left over and print it.
        if "vllm" not in sys.modules:
            gc.freeze()


if __name__ == "__main__":
    main()
