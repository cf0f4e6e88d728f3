"""Stage 6: how what was trained does in the engine, on prompts held out from its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from foredraft.integration.align.costs import Costs, measure_costs
from foredraft.integration.align.counts import AcceptanceCounts
from foredraft.integration.align.measure import AlignPrompt, measure_acceptance
from foredraft.integration.align.predict import best_num_draft_tokens, predicted_speedups
from foredraft.integration.config import Config, replaced
from foredraft.integration.embedded.build import Target, build_engine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.train.files import write_atomic
from foredraft.integration.train.samples import Sample

DRAFT_TOKENS = 4
MAX_SECONDS = 60.0
"""For each temperature."""

MAX_TOKENS = 128
BATCH_SIZE = 8


@dataclass(frozen=True)
class EndToEnd:
    """Measured in the engine, with ``DRAFT_TOKENS`` drafted per step.

    Attributes:
        greedy, sampled: acceptance at temperature 0 and 1.
        costs: of steps at batch 1; ``None`` if the prompts leave no room to measure.
        speedups: predicted for greedy requests at batch 1, per K.
    """

    greedy: AcceptanceCounts
    sampled: AcceptanceCounts
    costs: Costs | None
    speedups: dict[int, float]

    @property
    def num_draft_tokens(self) -> int:
        """The K that pays best; 1 where none does."""
        return (best_num_draft_tokens(self.speedups) if self.speedups else None) or 1


def drafting_with(config: Config, kind: str, folder: Path) -> Config:
    """``config`` with what is in ``folder``, a "draft" or an "exit" head, as its proposer."""
    if kind == "exit":
        return replaced(config, proposer="early_exit", early_exit={"head": str(folder)})
    return replaced(config, proposer="draft", draft={"model": str(folder)})


def measured_end_to_end(
    folder: Path, config: Config, load: Callable[[], Target], samples: Sequence[Sample], num_trained: int
) -> EndToEnd:
    """The measurement of what ``config`` drafts with, made once and kept in ``folder``.

    Args:
        num_trained: tokens it was trained on; what was trained further is measured again.
        load: gives the target; called only if there is something to measure.

    Raises:
        UserError: the engine does not fit into memory, or the disk is full.
    """
    path = folder / f"measured-{num_trained}.json"
    with suppress(FileNotFoundError, ValidationError):  # a damaged one is measured again
        return TypeAdapter(EndToEnd).validate_json(path.read_bytes())
    measured = _measure(config, load(), samples)
    write_atomic(path, TypeAdapter(EndToEnd).dump_json(measured, indent=1))
    return measured


def _measure(config: Config, target: Target, samples: Sequence[Sample]) -> EndToEnd:
    """Serve the prompts of the held-out samples."""
    prompts = [
        AlignPrompt("held out", sample.token_ids[: min(_prompt_len(sample), target.max_len - 1)])
        for sample in samples
        if sample.held_out and len(sample.token_ids) > 1
    ]
    longest = max(len(prompt.token_ids) for prompt in prompts)
    sizes = {"max_num_seqs": BATCH_SIZE, "max_model_len": min(target.max_len, longest + MAX_TOKENS)}
    engine_options = config.engine.model_dump() | sizes
    own = replaced(config, num_draft_tokens=DRAFT_TOKENS, engine=engine_options)
    engine = build_engine(own, target)
    sampling = SamplingParams(max_tokens=MAX_TOKENS, seed=0)
    greedy, sampled = (
        measure_acceptance(
            engine, prompts, temperature, sampling=sampling, batch_size=BATCH_SIZE, seconds=MAX_SECONDS
        ).overall
        for temperature in (0.0, 1.0)
    )
    costs = measure_costs(engine, [prompt.token_ids for prompt in prompts], 0.0, batch_size=1)
    speedups = {} if costs is None else predicted_speedups(greedy.position_acceptance, costs)
    return EndToEnd(greedy, sampled, costs, speedups)


def _prompt_len(sample: Sample) -> int:
    """Of a text that is no answer to anything, the first half is the prompt."""
    return sample.prompt_len or len(sample.token_ids) // 2
