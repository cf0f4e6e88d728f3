"""A comparison from plan to blocks: one target, one engine per proposer, progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from foredraft.integration.compare.offline.measure import MeasuredBlock, measure, warm_up
from foredraft.integration.compare.offline.output_check import OutputChecker
from foredraft.integration.compare.offline.prompts import Prompt, cell_requests
from foredraft.integration.compare.plan import BASELINE, ComparePlan
from foredraft.integration.config import replaced
from foredraft.integration.embedded.build import Target, build_engine
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError


def run_comparison(
    plan: ComparePlan, target: Target, prompts: Mapping[str, Sequence[Prompt]]
) -> Iterator[MeasuredBlock]:
    """Yield the blocks as they are completed.

    Args:
        prompts: per workload of the plan.

    Raises:
        UserError: the engines do not fit into memory.
    """
    engines = build_engines(plan, target, prompts)
    requests = {cell: cell_requests(plan, cell, prompts[cell.workload]) for cell in plan.cells()}
    checker = OutputChecker(
        engines[BASELINE].decoder,
        target.dtype,
        max(engine.num_draft_tokens for engine in engines.values()),
        plan.base.engine.prefill_chunk_tokens,
    )
    with _progress(len(engines) * sum(map(len, requests.values()))) as advance:
        warm_up(engines, next(iter(requests.values()))[0])
        yield from measure(engines, requests, checker, advance)


def build_engines(
    plan: ComparePlan, target: Target, prompts: Mapping[str, Sequence[Prompt]]
) -> dict[str, EmbeddedEngine]:
    """One engine per proposer, with room for the largest batch and the longest request, and no more.

    Raises:
        UserError: memory does not hold the largest batch.
    """
    num_rows = max(plan.batch_sizes)
    longest = max(len(prompt.token_ids) for chosen in prompts.values() for prompt in chosen)
    needed = min(longest + plan.base.sampling.max_tokens, target.max_len)
    engines = {}
    for name, config in plan.configs.items():
        sizes = {"max_num_seqs": num_rows, "max_model_len": config.engine.max_model_len or needed}
        engine = build_engine(replaced(config, engine=config.engine.model_dump() | sizes), target)
        if engine.decoder.num_rows < num_rows:
            raise UserError(
                f"--batch-sizes: {num_rows} requests of {engine.max_model_len} tokens do not fit, "
                f"{engine.decoder.num_rows} do; raise engine.kv_cache_memory_gb "
                f"({config.engine.kv_cache_memory_gb}) or lower --batch-sizes or --max-tokens"
            )
        engines[name] = engine
    return engines


@contextmanager
def _progress(num_requests: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, drawn only when it advances: a thread that redraws would disturb the measurement."""
    console = Console(stderr=True)
    columns = (TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=num_requests)

        def advance(num_served: int) -> None:
            progress.update(task, advance=num_served, refresh=True)

        yield advance
