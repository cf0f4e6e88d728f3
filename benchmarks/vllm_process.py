"""A vLLM engine in a process of its own, as a side of a benchmark."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any


@dataclass(frozen=True)
class EngineSettings:
    """What an engine is built of, and how it is timed.

    Attributes:
        foredraft: the plugin's options; ``None`` = a stock vLLM without speculation.
        cpu_time: count the engine's CPU time in place of the time that passes; with one thread it is what
            remains comparable on a machine that does other work as well.
    """

    model: str
    foredraft: dict[str, Any] | None
    dtype: str
    eager: bool
    max_tokens: int
    cpu_time: bool
    options: dict[str, Any] = field(default_factory=dict)


class VllmSide:
    """Starts the engine and waits until it is ready. One request at a time."""

    def __init__(self, settings: EngineSettings) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(settings, theirs), daemon=True)
        self._process.start()
        self._pipe.recv()

    def tokens_per_s(self, prompt_ids: Sequence[int]) -> float:
        """Of one greedy request, its prompt included in the time."""
        self._pipe.send(list(prompt_ids))
        speed: float = self._pipe.recv()
        return speed

    def close(self) -> dict[str, int]:
        """End the engine; how many tokens it drafted and accepted."""
        self._pipe.send(None)
        counts: dict[str, int] = self._pipe.recv()
        self._process.join()
        return counts


def _serve(settings: EngineSettings, pipe: Connection) -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # engine and worker in this process, to be timed
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM, SamplingParams

    options = dict(settings.options)
    if settings.foredraft is not None:
        options["additional_config"] = {"foredraft": settings.foredraft}
    llm = LLM(settings.model, dtype=settings.dtype, enforce_eager=settings.eager, max_num_seqs=1, **options)
    params = SamplingParams(temperature=0, max_tokens=settings.max_tokens)
    clock = time.process_time if settings.cpu_time else time.perf_counter
    pipe.send("ready")
    while (prompt_ids := pipe.recv()) is not None:
        began = clock()
        output = llm.generate([{"prompt_token_ids": prompt_ids}], params, use_tqdm=False)[0]
        pipe.send(len(output.outputs[0].token_ids) / (clock() - began))
    pipe.send(_counts(llm) if settings.foredraft is not None else {})


def _counts(llm: Any) -> dict[str, int]:
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    metrics = worker.model_runner.drafter.metrics
    return {
        "drafted": metrics.num_drafted_tokens,
        "accepted": metrics.num_accepted_tokens,
        "faults": metrics.num_proposer_faults,
    }
