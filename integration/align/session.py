"""A measurement from plan to results, one per temperature."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from foredraft.integration.align.costs import Costs, measure_costs
from foredraft.integration.align.measure import Acceptance, AlignPrompt, watch_acceptance
from foredraft.integration.align.plan import AlignPlan
from foredraft.integration.align.result import AlignResult
from foredraft.integration.config import replaced
from foredraft.integration.embedded.build import Target, build_engine
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError

COSTS_SHARE = 0.2
"""Of the time goes to the costs."""

COSTS_ROOM = 128
"""Output tokens that the engine has room for at least: the costs need some steps."""


class Measurement:
    """Results grow while it runs, so that who interrupts it keeps what there is.

    Attributes:
        results: one per temperature begun.
    """

    def __init__(self, plan: AlignPlan, target: Target, prompts: Sequence[AlignPrompt]) -> None:
        self.results: list[AlignResult] = []
        self._plan = plan
        self._prompts = prompts
        self._engine = build_align_engine(plan, target, prompts)

    def run(self) -> None:
        """Measure acceptance, then costs, temperature by temperature, within the plan's seconds."""
        plan, end = self._plan, time.monotonic() + self._plan.seconds
        with _progress(plan.seconds) as progress:
            for number, temperature in enumerate(plan.temperatures):
                seconds = max(0.0, end - time.monotonic()) / (len(plan.temperatures) - number)
                self._measure_acceptance(temperature, seconds * (1 - COSTS_SHARE), progress)
                costs = measure_costs(
                    self._engine,
                    [prompt.token_ids for prompt in self._prompts],
                    temperature,
                    batch_size=plan.batch_size,
                    seconds=seconds * COSTS_SHARE,
                )
                self.results[-1] = self._result(temperature, self.results[-1].acceptance, costs)

    def _measure_acceptance(self, temperature: float, seconds: float, progress: Progress) -> None:
        self.results.append(self._result(temperature, Acceptance(), None))
        began = time.monotonic() - sum(task.completed for task in progress.tasks)
        for acceptance in watch_acceptance(
            self._engine,
            self._prompts,
            temperature,
            sampling=self._plan.sampling,
            batch_size=self._plan.batch_size,
            seconds=seconds,
        ):
            self.results[-1] = self._result(temperature, acceptance, None)
            for task in progress.task_ids:
                progress.update(task, completed=time.monotonic() - began, refresh=True)

    def _result(self, temperature: float, acceptance: Acceptance, costs: Costs | None) -> AlignResult:
        return AlignResult(temperature, len(self._prompts), self._plan.num_draft_tokens, acceptance, costs)


def build_align_engine(plan: AlignPlan, target: Target, prompts: Sequence[AlignPrompt]) -> EmbeddedEngine:
    """An engine with room for the batch and the longest request.

    Raises:
        UserError: memory does not hold the batch, or the proposer cannot be built.
    """
    config = plan.config
    longest = max(len(prompt.token_ids) for prompt in prompts)
    middle = int(median(len(prompt.token_ids) for prompt in prompts))
    needed = min(max(longest + config.sampling.max_tokens, middle + COSTS_ROOM), target.max_len)
    sizes = {"max_num_seqs": plan.batch_size, "max_model_len": config.engine.max_model_len or needed}
    engine = build_engine(replaced(config, engine=config.engine.model_dump() | sizes), target)
    if engine.decoder.num_rows < plan.batch_size:
        raise UserError(
            f"--batch-size: {plan.batch_size} requests of {engine.max_model_len} tokens do not fit, "
            f"{engine.decoder.num_rows} do; raise engine.kv_cache_memory_gb "
            f"({config.engine.kv_cache_memory_gb}) or lower --batch-size or --max-tokens"
        )
    return engine


@contextmanager
def _progress(seconds: float) -> Iterator[Progress]:
    """A bar on stderr, drawn only when it advances: a thread that redraws would disturb the measurement."""
    console = Console(stderr=True)
    columns = (TextColumn("measuring"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as progress:
        progress.add_task("", total=seconds)
        yield progress
