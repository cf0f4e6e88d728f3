"""``foredraft train exit --sweep``: short trainings after several layers, to see where leaving pays best."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from foredraft.integration.align.predict import MIN_GAIN
from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.train.card import Outcome
from foredraft.integration.train.data_files import DataFiles, read_data_files
from foredraft.integration.train.files import write_atomic
from foredraft.integration.train.folder import SWEEP_FILE, run_folder
from foredraft.integration.train.interrupts import terminate_as_interrupt
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

    Every layer has a folder in ``folder``; what is there already is not made again.

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


def _as_json(rows: Sequence[SweepRow]) -> str:
    best = best_row(rows)
    found = {"layers": [asdict(row) for row in rows], "best_exit_layer": best and best.exit_layer}
    return json.dumps(found, indent=2) + "\n"
