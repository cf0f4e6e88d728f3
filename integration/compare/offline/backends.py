"""What serves a comparison: the embedded engine over one target, or engines of vLLM, each with its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.integration.compare.offline.engines import build_bench
from foredraft.integration.compare.offline.measure import Bench
from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.plan import ComparePlan
from foredraft.integration.compare.results.provenance import environment
from foredraft.integration.embedded import build

Prompts = Mapping[str, Sequence[Prompt]]
"""Per workload."""


@dataclass(frozen=True)
class Backend:
    """What is known before the engines are built, and how they are.

    Attributes:
        max_len: positions the model can take.
        environment: see ``provenance.environment``.
        build: engines with room for these prompts, and the output check.
    """

    tokenizer: Any | None
    max_len: int
    environment: dict[str, Any]
    build: Callable[[Prompts], Bench]


def embedded_backend(plan: ComparePlan) -> Backend:
    """Loads the target.

    Raises:
        UserError: it cannot be loaded, or run by the embedded engine.
    """
    target = build.load_target(plan.base)
    return Backend(
        target.tokenizer,
        target.max_len,
        environment(target),
        lambda prompts: build_bench(plan, target, prompts),
    )


def vllm_backend(plan: ComparePlan) -> Backend:
    """Reads the model's configuration and tokenizer; each engine loads the model for itself.

    Raises:
        UserError: vLLM cannot use the model.
    """
    from foredraft.integration.vllm.quiet import quiet_log

    quiet_log()
    from foredraft.integration.compare.offline.vllm_engines import build_vllm_bench, vllm_environment
    from foredraft.integration.vllm.engine_build import model_facts

    facts = model_facts(plan.base, plan.vllm_options)
    return Backend(
        facts.tokenizer,
        facts.max_len,
        vllm_environment(plan.base.model, facts),
        lambda prompts: build_vllm_bench(plan, facts, prompts),
    )
