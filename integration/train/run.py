"""The stages of ``foredraft train`` in a row; each goes on where an earlier run in the folder ended."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target, load_target
from foredraft.integration.interrupts import terminate_as_interrupt
from foredraft.integration.train.card import Outcome, write_card
from foredraft.integration.train.data import prepare_data
from foredraft.integration.train.data_files import DataFiles, DataLine, read_data_files
from foredraft.integration.train.end_to_end import drafting_with, measured_end_to_end
from foredraft.integration.train.exit_states import exit_states_folder, make_exit_states, typical_size
from foredraft.integration.train.export import export_student
from foredraft.integration.train.features import FEATURES, make_features
from foredraft.integration.train.folder import run_folder, sweep_folders
from foredraft.integration.train.kept_settings import check_shared_data, keep_settings
from foredraft.integration.train.loop import Trainer
from foredraft.integration.train.pieces import Piece, check_usable, cut
from foredraft.integration.train.samples import Sample
from foredraft.integration.train.settings import PIECE_TOKENS, ExitSettings, TrainSettings
from foredraft.integration.train.stage_times import StageTimes
from foredraft.integration.train.student import Student
from foredraft.integration.train.target_parts import TargetParts, read_target_parts
from foredraft.integration.train.training_data import TrainingData
from foredraft.integration.train.vocabulary import check_in_vocabulary, choose_head_ids, coverage


def train(folder: Path, settings: TrainSettings, config: Config) -> Outcome:
    """Everything from data to card; returns what the card says.

    Raises:
        UserError: bad settings or data, another run's folder, a full disk, a loss that is no number.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the same call goes on later.
    """
    with terminate_as_interrupt():
        given = read_data_files(settings.data)
        with run_folder(folder, settings.data):
            return train_in(folder, folder, settings, config, given)


def train_in(
    folder: Path, data_folder: Path, settings: TrainSettings, config: Config, given: DataFiles
) -> Outcome:
    """The same in a folder that is locked.

    Args:
        data_folder: where samples, features and exit states are, or come; other runs may share it.
    """
    parts = read_target_parts(config, settings)
    settings = settings.for_target(parts.num_layers)
    dtype = str(parts.dtype).removeprefix("torch.")
    named = {"model": parts.name, "dtype": dtype, "target_fingerprint": parts.fingerprint}
    sharing = [data_folder, *sweep_folders(data_folder)]
    check_shared_data(sharing, settings, named, given.digests)
    keep_settings(folder, settings, named, given.digests)
    times = StageTimes(folder / "times.json")
    samples, data = _read_data(data_folder, settings, config, given.lines, parts, times)
    head_ids = choose_head_ids(samples, settings.head_tokens, parts.vocab_size, parts.eos_ids)
    student = make_student(parts, head_ids, settings, data.exit_states)
    with times.stage("training"):
        trainer = Trainer(
            folder, settings, student, parts.embedding, head_ids, data, autocast=uses_bfloat16(parts)
        )
        trainer.run()
    export_student(folder, settings, student, head_ids, parts)
    with times.stage("measuring"):
        drafting = drafting_with(config, settings.kind, folder)
        end_to_end = measured_end_to_end(
            folder, drafting, lambda: load_target(config), samples, settings.train_tokens
        )
    export_student(folder, settings, student, head_ids, parts, end_to_end.num_draft_tokens)
    outcome = Outcome(
        target=parts.name,
        target_fingerprint=parts.fingerprint,
        dtype=dtype,
        samples=samples,
        log=trainer.log.entries,
        end_to_end=end_to_end,
        coverage=coverage(samples, head_ids),
        seconds=times.seconds,
        num_weights=sum(weight.numel() for weight in student.parameters()),
    )
    write_card(folder, settings, outcome)
    return outcome


def _read_data(
    folder: Path,
    settings: TrainSettings,
    config: Config,
    lines: list[DataLine],
    parts: TargetParts,
    times: StageTimes,
) -> tuple[list[Sample], TrainingData]:
    """Samples, pieces and features. The whole target is in memory only in here, and only if needed."""
    load = functools.cache(lambda: load_target(config))
    try:
        with times.stage("data"):
            samples = prepare_data(folder, settings, config, lines, load)
        check_in_vocabulary(samples, parts.vocab_size)
        pieces = cut(samples, min(PIECE_TOKENS, parts.max_len))
        check_usable(samples, pieces)
        with times.stage("features"):
            features = make_features(folder / FEATURES, pieces, parts.fingerprint, load, parts.hidden_size)
            exit_states = _exit_states(folder, settings, pieces, parts, load)
    finally:
        load.cache_clear()
        gc.collect()
    return samples, TrainingData(pieces, features, exit_states)


def _exit_states(
    folder: Path,
    settings: TrainSettings,
    pieces: Sequence[Piece],
    parts: TargetParts,
    load: Callable[[], Target],
) -> list[Tensor] | None:
    if not isinstance(settings, ExitSettings):
        return None
    assert settings.exit_layer is not None, "for_target decided it"
    return make_exit_states(
        exit_states_folder(folder, settings.exit_layer),
        pieces,
        parts.fingerprint,
        settings.exit_layer,
        load,
        parts.hidden_size,
    )


def make_student(
    parts: TargetParts, head_ids: Tensor, settings: TrainSettings, exit_states: Sequence[Tensor] | None = None
) -> Student:
    """The untrained student; its head rows are in the dtype that products are made in."""
    dtype = torch.bfloat16 if uses_bfloat16(parts) else torch.float32
    head_weight = parts.head_weight[head_ids.to(parts.device)].to(dtype)
    given_size = 0.0 if exit_states is None else typical_size(exit_states)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        student = Student(
            parts.base, head_weight, reads_states=settings.form == "states", given_size=given_size
        )
    return student.to(parts.device).requires_grad_(True)


def uses_bfloat16(parts: TargetParts) -> bool:
    """Whether to train in bfloat16 (weights in float32): wherever the target runs in half precision."""
    return parts.dtype != torch.float32
