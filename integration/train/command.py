"""``foredraft train draft``: distil a draft from its target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foredraft.integration.cli_options import with_config
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.train.settings import TrainSettings

if TYPE_CHECKING:
    from foredraft.integration.train.card import Outcome

train_app = typer.Typer(help="Fit what drafts to its target.", no_args_is_help=True)


def _option(name: str, **more: Any) -> Any:
    """The flag of a field of ``TrainSettings``."""
    field = TrainSettings.model_fields[name]
    shown = "" if field.default is None else f" (default: {field.default})"
    return typer.Option(help=f"{field.description}{shown}", show_default=False, **more)


Out = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Where everything goes. A rerun with the same flags goes on there."),
]
Data = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help=str(TrainSettings.model_fields["data"].description)),
]
WriteTokens = Annotated[int | None, _option("write_tokens")]
MaxResponseTokens = Annotated[int | None, _option("max_response_tokens")]
Form = Annotated[str | None, _option("form", metavar="states|plain")]
Layers = Annotated[int | None, _option("layers")]
Init = Annotated[str | None, _option("init", metavar="last|first|fresh")]
HeadTokens = Annotated[int | None, _option("head_tokens")]
TrainTokens = Annotated[int | None, _option("train_tokens")]
BatchTokens = Annotated[int | None, _option("batch_tokens")]
LearningRate = Annotated[float | None, _option("learning_rate")]
Loss = Annotated[str | None, _option("loss", metavar="kl|tv")]
StateLoss = Annotated[float | None, _option("state_loss")]
Rollout = Annotated[int | None, _option("rollout")]


@train_app.command("draft")
@with_config
def train_draft_command(
    loaded: LoadedConfig,
    out: Out,
    data: Data = None,
    write_tokens: WriteTokens = None,
    max_response_tokens: MaxResponseTokens = None,
    form: Form = None,
    layers: Layers = None,
    init: Init = None,
    head_tokens: HeadTokens = None,
    train_tokens: TrainTokens = None,
    batch_tokens: BatchTokens = None,
    learning_rate: LearningRate = None,
    loss: Loss = None,
    state_loss: StateLoss = None,
    rollout: Rollout = None,
) -> None:
    """Distil a draft for --model: a few layers that guess what it will say next.

    The target writes the training text itself unless --data is given: JSONL, each
    line {"text": ...}, {"messages": [...]}, {"prompt": ...} or {"turns": [...]};
    what ends with the user is answered by the target. The seed is that of --seed.

    Ctrl-C ends the run; the same command goes on where it was.
    """
    given = {
        "data": tuple(data) if data else None,
        "write_tokens": write_tokens,
        "max_response_tokens": max_response_tokens,
        "form": form,
        "layers": layers,
        "init": init,
        "head_tokens": head_tokens,
        "train_tokens": train_tokens,
        "batch_tokens": batch_tokens,
        "learning_rate": learning_rate,
        "loss": loss,
        "state_loss": state_loss,
        "rollout": rollout,
        "seed": loaded.config.sampling.seed,
    }
    settings = TrainSettings(**{name: value for name, value in given.items() if value is not None})

    from foredraft.integration.train.run import train_draft

    _print_outcome(train_draft(out, settings, loaded.config), out)


def _print_outcome(outcome: Outcome, out: Path) -> None:
    from foredraft.integration.train.card import end_to_end_lines

    before, after = outcome.log[0], outcome.log[-1]
    print(
        f"the draft for {outcome.target} is in {out}: {outcome.num_weights / 1e6:.2f} million trained weights"
    )
    print(f"it can propose {outcome.coverage:.1%} of the held-out tokens")
    print("acceptance of the first drafted token, held-out responses, teacher-forced:")
    print(f"  greedy         {before.held_out_greedy:.3f} before, {after.held_out_greedy:.3f} after")
    print(f"  temperature 1  {before.held_out_sampled:.3f} before, {after.held_out_sampled:.3f} after")
    print("in the engine, held-out prompts:")
    for line in end_to_end_lines(outcome.end_to_end):
        print(f"  {line.removeprefix('- ')}")
