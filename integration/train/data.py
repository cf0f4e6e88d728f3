"""Stage 1, the data: texts given by the user, answers of the target, or everything by the target.

Each of the two sources has a file of samples that grows chunk by chunk; a rerun goes on behind the last one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from foredraft.integration.config import Config, replaced
from foredraft.integration.embedded.build import Target, build_engine
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError
from foredraft.integration.interrupts import lost_if_interrupted
from foredraft.integration.train.data_files import DataLine, encode_line
from foredraft.integration.train.files import writing_to
from foredraft.integration.train.progress import StageProgress
from foredraft.integration.train.samples import Sample, append_samples, read_samples
from foredraft.integration.train.settings import TrainSettings
from foredraft.integration.train.writing import Prompt, write_prompts, write_responses

WRITTEN, GIVEN = "written.jsonl", "given.jsonl"
CHUNK = 192
"""Texts written between two saves."""
ROWS = 48
OWN_PROMPT_TOKENS = 384
"""Room for a prompt that the target wrote."""

LONGEST_PROMPT = 2048
"""Longer ones are not answered: the cache of many long texts would not fit into the memory."""

CACHE_TOKENS = 32_768
"""Of all texts that are written at once."""
MAX_FRUITLESS_CHUNKS = 4


def prepare_data(
    folder: Path,
    settings: TrainSettings,
    config: Config,
    lines: Sequence[DataLine],
    load: Callable[[], Target],
) -> list[Sample]:
    """All samples of the run, what the target wrote by itself first, made or completed in ``folder``.

    Args:
        lines: the user's.
        load: gives the target; called only if there is something to do.

    Raises:
        UserError: bad data, a target that cannot write, or a disk that is full.
    """
    written, given = SampleFile(folder / WRITTEN), SampleFile(folder / GIVEN)
    if written.num_tokens < settings.tokens_to_write:
        engine = writing_engine(config, load(), OWN_PROMPT_TOKENS + settings.max_response_tokens)
        _write_own(written, settings, engine)
    if given.next_index < len(lines):
        _encode_lines(lines, given, settings, config, load())
    return written.samples + given.samples


class SampleFile:
    """The samples so far, in memory and on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.samples = read_samples(path)
        self.num_tokens = sum(len(sample.token_ids) for sample in self.samples)

    @property
    def next_index(self) -> int:
        """The index behind the last sample."""
        return max((sample.index for sample in self.samples), default=-1) + 1

    def add(self, samples: Sequence[Sample]) -> None:
        """Append and save.

        Raises:
            UserError: the disk is full.
        """
        with writing_to(self._path):
            append_samples(self._path, samples)
        self.samples += samples
        self.num_tokens += sum(len(sample.token_ids) for sample in samples)


def writing_engine(config: Config, target: Target, num_tokens: int) -> EmbeddedEngine:
    """An engine for many texts of up to so many tokens at once, without a proposer."""
    max_len = min(target.max_len, num_tokens)
    rows = max(1, min(ROWS, CACHE_TOKENS // max_len))
    sizes = config.engine.model_dump() | {"max_num_seqs": rows, "max_model_len": max_len}
    return build_engine(replaced(config, proposer="none", engine=sizes), target)


def _write_own(samples: SampleFile, settings: TrainSettings, engine: EmbeddedEngine) -> None:
    """The target writes prompts and answers them, until there are enough tokens."""
    start = -(-samples.next_index // CHUNK) * CHUNK
    fruitless = 0
    with StageProgress("the target writes", settings.tokens_to_write, samples.num_tokens) as progress:
        while samples.num_tokens < settings.tokens_to_write:
            with lost_if_interrupted(f"the texts from {start} to {start + CHUNK - 1}"):
                prompts = write_prompts(engine, range(start, start + CHUNK), settings.seed)
                written = _answers(prompts, settings, engine)
            samples.add(written)
            start += CHUNK
            fruitless = 0 if written else fruitless + 1
            if fruitless == MAX_FRUITLESS_CHUNKS:
                raise UserError(
                    f"--data: the target wrote no usable prompt in {fruitless * CHUNK} tries; give a file"
                )
            progress.update(samples.num_tokens, f"{len(samples.samples)} samples")


def _encode_lines(
    lines: Sequence[DataLine], samples: SampleFile, settings: TrainSettings, config: Config, target: Target
) -> None:
    """Samples of the user's lines behind those that are there already; the target answers where it must."""
    if target.tokenizer is None:
        raise UserError("--data: this model has no tokenizer; text cannot be turned into tokens")
    first = samples.next_index
    encoded = [encode_line(lines[at], at, target.tokenizer) for at in range(first, len(lines))]
    encoded = _without_long_prompts(encoded, target.max_len, nothing_yet=first == 0)
    lengths = [len(one.token_ids) for one in encoded if isinstance(one, Prompt)]
    engine = writing_engine(config, target, max(lengths) + settings.max_response_tokens) if lengths else None
    with StageProgress("reading the data", total=len(lines), done=first, unit="lines") as progress:
        for begin in range(0, len(encoded), CHUNK):
            chunk = encoded[begin : begin + CHUNK]
            done = [one for one in chunk if isinstance(one, Sample)]
            if engine is not None:
                with lost_if_interrupted(f"the answers from {chunk[0].index} to {chunk[-1].index}"):
                    done += _answers([one for one in chunk if isinstance(one, Prompt)], settings, engine)
            samples.add(sorted(done, key=lambda sample: sample.index))
            progress.update(chunk[-1].index + 1, f"{samples.num_tokens} tokens")


def _without_long_prompts(
    encoded: list[Sample | Prompt], max_len: int, *, nothing_yet: bool
) -> list[Sample | Prompt]:
    """What can be used; prompts that leave no room for an answer are left out, and said to be."""
    limit = min(LONGEST_PROMPT + 1, max_len)
    kept = [one for one in encoded if isinstance(one, Sample) or len(one.token_ids) < limit]
    count = len(encoded) - len(kept)
    if encoded and nothing_yet and not kept:
        raise UserError(f"--data: all {count} prompts are too long: {limit} tokens or more")
    if count:
        print(f"{count} prompts of {limit} tokens or more are left out", file=sys.stderr)
    return kept


def _answers(prompts: Sequence[Prompt], settings: TrainSettings, engine: EmbeddedEngine) -> list[Sample]:
    """The target's answers to the prompts that leave room for one."""
    fitting = [prompt for prompt in prompts if len(prompt.token_ids) < engine.max_model_len]
    return list(write_responses(engine, fitting, settings.max_response_tokens, settings.seed))
