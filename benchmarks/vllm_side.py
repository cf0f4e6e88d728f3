"""vLLM as a side of a paired benchmark: built once per proposer, one process for all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Read by vLLM when it is imported. In this process the drafter can be looked at.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

from foredraft.integration.config import Config
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.vllm.engine import VllmEngine
from foredraft.integration.vllm.engine_build import build_vllm_engine

MAX_LEN = 1024


def vllm_engine(
    proposer: str, batch: int, options: Any, given: Mapping[str, Any] | None = None, **values: Any
) -> VllmEngine:
    """An engine with room for ``batch`` requests of ``MAX_LEN`` tokens.

    Args:
        options: of the command line: model, dtype, compiled.
        given: options of vLLM's engine.
        values: of our configuration.
    """
    sizes = {"max_num_seqs": batch, "max_model_len": MAX_LEN, "kv_cache_memory_gb": 0.5}
    config = Config(model=options.model, dtype=options.dtype, proposer=proposer, engine=sizes, **values)
    usual = {"enforce_eager": not options.compiled, "enable_prefix_caching": False}
    return build_vllm_engine(config, usual | dict(given or {}))


def tokens_per_s(
    engine: VllmEngine, prompts: Sequence[list[int]], batch: int, max_tokens: int
) -> Callable[[int], float]:
    """A side: block b serves the b-th batch of the prompts, greedily."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)

    def run(block: int) -> float:
        chosen = [prompts[(block * batch + place) % len(prompts)] for place in range(batch)]
        began = time.perf_counter()
        outputs = engine.generate(chosen, params)
        spent = time.perf_counter() - began
        return sum(len(output.outputs[0].token_ids) for output in outputs) / spent

    return run


def runner_of(engine: VllmEngine) -> Any:
    """The model runner in this process."""
    executor = engine.llm_engine.engine_core.engine_core.model_executor
    return executor.driver_worker.worker.model_runner
