"""The engines of a comparison: one per configuration, over one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foredraft.integration.compare.offline.law_check import LawChecker
from foredraft.integration.compare.offline.measure import Bench
from foredraft.integration.compare.offline.output_check import OutputChecker
from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.plan import ComparePlan
from foredraft.integration.compare.variants import BASELINE
from foredraft.integration.config import Config, replaced
from foredraft.integration.embedded.build import Target, build_engine
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError


def build_bench(plan: ComparePlan, target: Target, prompts: Mapping[str, Sequence[Prompt]]) -> Bench:
    """Engines and output check for what of the plan can be built.

    Raises:
        UserError: see ``build_engines``.
    """
    engines = build_engines(plan, target, prompts)
    checker = OutputChecker(
        engines[BASELINE].decoder,
        target.dtype,
        max(engine.num_draft_tokens for engine in engines.values()),
        plan.base.engine.prefill_chunk_tokens,
    )
    law_checker = LawChecker(engines[BASELINE].decoder, plan.base.engine.prefill_chunk_tokens)
    return Bench(plan.without(plan.configs.keys() - engines.keys()), engines, checker, law_checker)


def build_engines(
    plan: ComparePlan, target: Target, prompts: Mapping[str, Sequence[Prompt]]
) -> dict[str, EmbeddedEngine]:
    """One engine per configuration, with room for the largest batch and the longest request, and no more.

    Raises:
        UserError: one that is not optional cannot be built; memory does not hold the largest batch.
    """
    longest = max(len(prompt.token_ids) for chosen in prompts.values() for prompt in chosen)
    needed = min(longest + plan.base.sampling.max_tokens, target.max_len)
    engines = {}
    for name, config in plan.configs.items():
        try:
            engines[name] = _build(config, target, plan.max_batch_size, needed)
        except UserError:
            if name not in plan.optional:
                raise
    return engines


def _build(config: Config, target: Target, num_rows: int, needed: int) -> EmbeddedEngine:
    sizes = {"max_num_seqs": num_rows, "max_model_len": config.engine.max_model_len or needed}
    engine = build_engine(replaced(config, engine=config.engine.model_dump() | sizes), target)
    if engine.decoder.num_rows < num_rows:
        raise UserError(
            f"--batch-sizes: {num_rows} requests of {engine.max_model_len} tokens do not fit, "
            f"{engine.decoder.num_rows} do; raise engine.kv_cache_memory_gb "
            f"({config.engine.kv_cache_memory_gb}) or lower --batch-sizes or --max-tokens"
        )
    return engine
