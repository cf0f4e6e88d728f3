"""The engines of a comparison on vLLM: each with its own model, cache and, by vLLM's default, process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.integration.compare.offline.measure import Bench
from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.offline.vllm_check import VllmChecker
from foredraft.integration.compare.plan import ComparePlan
from foredraft.integration.compare.results.provenance import torch_machine
from foredraft.integration.compare.variants import BASELINE
from foredraft.integration.config import Config, replaced
from foredraft.integration.errors import UserError
from foredraft.integration.vllm.engine import VllmEngine
from foredraft.integration.vllm.engine_build import ModelFacts, build_vllm_engine

NO_PREFIX_CACHE = {"enable_prefix_caching": False}
"""Prompts are served more than once; read from a cache, they would cost nothing from the second time on."""


def build_vllm_bench(plan: ComparePlan, facts: ModelFacts, prompts: Mapping[str, Sequence[Prompt]]) -> Bench:
    """One engine per configuration that can be built, and the output check.

    Raises:
        UserError: one that is not optional cannot be built.
    """
    longest = max(len(prompt.token_ids) for chosen in prompts.values() for prompt in chosen)
    max_len = plan.base.engine.max_model_len or min(longest + plan.base.sampling.max_tokens, facts.max_len)
    engines: dict[str, VllmEngine] = {}
    for name, config in plan.configs.items():
        try:
            engines[name] = _build(config, plan, max_len)
        except UserError:
            if name not in plan.optional:
                raise
    most = max(engine.num_draft_tokens for engine in engines.values())
    checker = VllmChecker(engines[BASELINE], facts.dtype == "float32", most, max_len)
    return Bench(plan.without(plan.configs.keys() - engines.keys()), engines, checker)


def vllm_environment(model: str, facts: ModelFacts) -> dict[str, Any]:
    """Versions, hardware, and how the target runs; see ``provenance.environment``."""
    return torch_machine(facts.gpu_name) | {
        "vllm": facts.vllm_version,
        "engine": "vllm",
        "model": model,
        "dtype": facts.dtype,
        "device": facts.device,
    }


def _build(config: Config, plan: ComparePlan, max_len: int) -> VllmEngine:
    sizes = {"max_num_seqs": plan.max_batch_size, "max_model_len": max_len}
    sized = replaced(config, engine=config.engine.model_dump() | sizes)
    return build_vllm_engine(sized, NO_PREFIX_CACHE | dict(plan.vllm_options))
