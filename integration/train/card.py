"""The card beside what was trained: how it was made, and how well it does on held-out text."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from foredraft.integration.align.counts import AcceptanceCounts
from foredraft.integration.train.end_to_end import EndToEnd
from foredraft.integration.train.files import write_atomic
from foredraft.integration.train.samples import Sample
from foredraft.integration.train.settings import ExitSettings, TrainSettings
from foredraft.integration.train.train_log import LogEntry

CARD_FILE = "README.md"
PACKAGES = ("foredraft", "torch", "transformers")


@dataclass(frozen=True)
class Outcome:
    """What a finished run knows of itself.

    Attributes:
        coverage: share of held-out tokens that it can propose.
        seconds: time per stage.
        num_weights: trained weights.
    """

    target: str
    target_fingerprint: str
    dtype: str
    samples: Sequence[Sample]
    log: Sequence[LogEntry]
    end_to_end: EndToEnd
    coverage: float
    seconds: Mapping[str, float]
    num_weights: int


def write_card(folder: Path, settings: TrainSettings, outcome: Outcome) -> None:
    """Write README.md.

    Raises:
        UserError: the disk is full.
    """
    write_atomic(folder / CARD_FILE, card_text(settings, outcome).encode())


def card_text(settings: TrainSettings, outcome: Outcome) -> str:
    """The card in Markdown."""
    return "\n".join(
        [
            f"# {settings.with_article.capitalize()} for {Path(outcome.target).name}",
            "",
            f"{_form(settings)}; {outcome.num_weights / 1e6:.2f} million trained weights beside the target's "
            f"own embedding and head, of which it knows {settings.head_tokens} tokens. Made by",
            "",
            f"    {command_line(settings, outcome)}",
            "",
            f"for the target with the fingerprint `{outcome.target_fingerprint}` in {outcome.dtype}.",
            "",
            "## Data",
            "",
            _data(settings, outcome.samples),
            f"The {settings.noun} can propose {outcome.coverage:.1%} of the held-out tokens.",
            "",
            "## Acceptance of the first drafted token, held-out responses, teacher-forced",
            "",
            "| | trained tokens | greedy | temperature 1 |",
            "|---|---|---|---|",
            _row("before", outcome.log[0]),
            _row("after", outcome.log[-1]),
            "",
            "## In the engine: held-out prompts, greedy costs at batch 1",
            "",
            *end_to_end_lines(outcome.end_to_end),
            "",
            "## Settings",
            "",
            *(f"- {name}: {value}" for name, value in _settings(settings).items() if value != ()),
            "",
            "## Time",
            "",
            *(f"- {stage}: {seconds:.0f} s" for stage, seconds in outcome.seconds.items()),
            "",
            "Made with "
            + ", ".join(f"{name} {version(name)}" for name in PACKAGES)
            + f", Python {platform.python_version()}.",
            "",
        ]
    )


def end_to_end_lines(found: EndToEnd) -> list[str]:
    """Acceptance by position, the cost of drafting, and what to expect from both."""
    lines = [
        f"- acceptance by position, greedy: {_rates(found.greedy)}",
        f"- acceptance by position, temperature 1: {_rates(found.sampled)}",
    ]
    if found.costs is not None:
        ratio = found.costs.draft_step_s / found.costs.step_s[0]
        predicted = ", ".join(f"K = {number} {gain:.2f}" for number, gain in found.speedups.items())
        lines += [
            f"- one drafting step costs {ratio:.3f} of a plain step",
            f"- predicted speedup: {predicted}; drafts {found.num_draft_tokens} unless told otherwise",
        ]
    return lines


def _rates(counts: AcceptanceCounts) -> str:
    rates = ["no data" if rate is None else f"{rate:.3f}" for rate in counts.position_acceptance]
    return ", ".join(rates) or "no data"


def command_line(settings: TrainSettings, outcome: Outcome) -> str:
    """The command that makes the same again; folders are left out of the names of files."""
    parts = [f"foredraft train {settings.kind} --out DIR", f"--model {Path(outcome.target).name}"]
    if settings != (default := type(settings)()):
        for name, value in _settings(settings).items():
            if value == getattr(default, name):
                continue
            values = value if isinstance(value, tuple) else (value,)
            parts += [f"--{name.replace('_', '-')} {one}" for one in values]
    return " ".join([*parts, f"--dtype {outcome.dtype}"])


def _settings(settings: TrainSettings) -> dict[str, object]:
    return settings.model_dump() | {"data": tuple(Path(path).name for path in settings.data)}


def _form(settings: TrainSettings) -> str:
    layers = "One decoder layer" if settings.layers == 1 else f"{settings.layers} decoder layers"
    reads = " that also read the target's last hidden state" if settings.form == "states" else ""
    if isinstance(settings, ExitSettings):
        layers += f" behind layer {settings.exit_layer} of the target"
    return layers + (reads.replace("read ", "reads ") if settings.layers == 1 else reads)


def _data(settings: TrainSettings, samples: Sequence[Sample]) -> str:
    num_tokens = sum(len(sample.token_ids) for sample in samples)
    in_responses = sum(len(sample.token_ids) - sample.prompt_len for sample in samples)
    held_out = sum(sample.held_out for sample in samples)
    sources = []
    if settings.tokens_to_write:
        sources.append("prompts and answers written by the target (Magpie, arXiv 2406.08464)")
    if settings.data:
        files = ", ".join(Path(path).name for path in settings.data)
        sources.append(f"{files}, answered by the target where it ends with a prompt")
    written = " and ".join(sources)
    return (
        f"{len(samples)} samples of {num_tokens} tokens, {in_responses} of them in responses: {written}. "
        f"Half of the answers are greedy, the rest drawn at temperature 1 and 0.7. {held_out} samples are "
        "held out of training and of the choice of the vocabulary."
    )


def _row(name: str, entry: LogEntry) -> str:
    return f"| {name} | {entry.tokens} | {entry.held_out_greedy:.3f} | {entry.held_out_sampled:.3f} |"


def print_outcome(outcome: Outcome, settings: TrainSettings, out: Path) -> None:
    """The gist of the card, for the terminal."""
    before, after = outcome.log[0], outcome.log[-1]
    print(
        f"the {settings.noun} for {outcome.target} is in {out}: {outcome.num_weights / 1e6:.2f} million "
        "trained weights"
    )
    print(f"it can propose {outcome.coverage:.1%} of the held-out tokens")
    print("acceptance of the first drafted token, held-out responses, teacher-forced:")
    print(f"  greedy         {before.held_out_greedy:.3f} before, {after.held_out_greedy:.3f} after")
    print(f"  temperature 1  {before.held_out_sampled:.3f} before, {after.held_out_sampled:.3f} after")
    print("in the engine, held-out prompts:")
    for line in end_to_end_lines(outcome.end_to_end):
        print(f"  {line.removeprefix('- ')}")
