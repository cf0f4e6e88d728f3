"""``foredraft train exit --sweep``: short trainings after several layers, to see where leaving pays best."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from foredraft.integration.align.predict import MIN_GAIN
from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.interrupts import terminate_as_interrupt
from foredraft.integration.train.card import Outcome
from foredraft.integration.train.data_files import DataFiles, read_data_files
from foredraft.integration.train.files import write_atomic
from foredraft.integration.train.folder import SWEEP_FILE, run_folder
from foredraft.integration.train.run import train_in
from foredraft.integration.train.settings import ExitSettings
from foredraft.integration.train.target_parts import read_target_parts


@dataclass(frozen=True)
class SweepRow:
    """What a short training for one exit layer came to.

    Attributes:
        held_out_greedy: teacher-forced acceptance of the first drafted token.
        draft_step_ratio: cost of a drafting step against a plain step, batch 1; ``None`` = not measured.
        num_draft_tokens: the K of the highest predicted speedup.
        speedup: that one, greedy, batch 1.
    """

    exit_layer: int
    train_tokens: int
    held_out_greedy: float
    draft_step_ratio: float | None
    num_draft_tokens: int | None
    speedup: float | None


@dataclass(frozen=True)
class _Sweep:
    """What sweep.json holds."""

    layers: list[SweepRow]
    best_exit_layer: int | None


def parse_layers(text: str) -> list[int]:
    """ "4,1,2" -> [1, 2, 4].

    Raises:
        UserError: not a list of layers.
    """
    try:
        layers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        layers = []
    if not layers or layers[0] < 1:
        raise UserError(f"--sweep: needs exit layers such as 1,2,4 (got {text!r})")
    return layers


def run_sweep(folder: Path, layers: Sequence[int], settings: ExitSettings, config: Config) -> list[SweepRow]:
    """Train and measure an exit head after each of ``layers``, on the same data; written to sweep.json too.

    Every layer has a folder in ``folder``; what is there already is not made again. Layers that an earlier
    sweep tried with as many tokens are among the rows.

    Args:
        settings: of each training, the exit layer aside.

    Raises:
        UserError: as ``train``; a layer that the target has not got, before anything is trained.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the same call goes on later.
    """
    with terminate_as_interrupt():
        given = read_data_files(settings.data)
        with run_folder(folder, settings.data):
            plans = _plans(layers, settings, config)
            rows = [_row(plan, _train(folder, plan, config, given)) for plan in plans]
            rows = _with_earlier(rows, folder / SWEEP_FILE)
            write_atomic(folder / SWEEP_FILE, _as_json(rows).encode())
            return rows


def best_row(rows: Sequence[SweepRow]) -> SweepRow | None:
    """The one of the highest speedup; ``None`` where none is a gain."""
    gains = [row for row in rows if row.speedup is not None and row.speedup >= MIN_GAIN]
    return max(gains, key=lambda row: row.speedup or 0.0, default=None)


def _plans(layers: Sequence[int], settings: ExitSettings, config: Config) -> list[ExitSettings]:
    """The settings of each training, checked against the target."""
    plans = [settings.model_copy(update={"exit_layer": layer}) for layer in layers]
    try:
        num_layers = read_target_parts(config, plans[0]).num_layers
        return [plan.for_target(num_layers) for plan in plans]
    except UserError as error:
        raise UserError(f"--sweep: {error}") from None


def _train(folder: Path, plan: ExitSettings, config: Config, given: DataFiles) -> Outcome:
    print(f"exit layer {plan.exit_layer}", file=sys.stderr)
    own = folder / f"sweep-{plan.exit_layer}"
    with run_folder(own, []):
        try:
            return train_in(own, folder, plan, config, given)
        except UserError as error:
            raise UserError(str(error).replace("--train-tokens", "--sweep-tokens")) from None


def _row(plan: ExitSettings, outcome: Outcome) -> SweepRow:
    assert plan.exit_layer is not None, "every plan has its own"
    found = outcome.end_to_end
    best = max(found.speedups, key=lambda num_drafted: found.speedups[num_drafted], default=None)
    return SweepRow(
        exit_layer=plan.exit_layer,
        train_tokens=outcome.log[-1].tokens,
        held_out_greedy=outcome.log[-1].held_out_greedy,
        draft_step_ratio=None if found.costs is None else found.costs.draft_step_s / found.costs.step_s[0],
        num_draft_tokens=best,
        speedup=None if best is None else found.speedups[best],
    )


def _with_earlier(rows: Sequence[SweepRow], path: Path) -> list[SweepRow]:
    """The rows and those in ``path`` of other layers, trained as long."""
    earlier: list[SweepRow] = []
    with suppress(FileNotFoundError, ValidationError):  # a damaged file is written anew
        earlier = TypeAdapter(_Sweep).validate_json(path.read_bytes()).layers
    known = {row.exit_layer for row in rows}
    tokens = {row.train_tokens for row in rows}
    kept = [row for row in earlier if row.exit_layer not in known and row.train_tokens in tokens]
    return sorted([*rows, *kept], key=lambda row: row.exit_layer)


def _as_json(rows: Sequence[SweepRow]) -> str:
    best = best_row(rows)
    found = _Sweep(list(rows), best.exit_layer if best else None)
    return TypeAdapter(_Sweep).dump_json(found, indent=2).decode() + "\n"
