"""What ``align`` measures: the command line turned into a configuration and prompts, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeVar

from foredraft.integration.config import AUTO, Config, fixed_draft_tokens, replaced
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.workloads import WorkloadPrompt, load_workload

ALIGN_TOKENS = 64
"""Output tokens per prompt unless the user says: a minute is better spent on more prompts."""

DRAFT_TOKENS = 4

Item = TypeVar("Item")


@dataclass(frozen=True)
class AlignPlan:
    """Everything a measurement is told. ``config`` has the proposer and the number of drafted tokens."""

    config: Config
    workloads: tuple[str, ...]
    temperatures: tuple[float, ...]
    batch_size: int
    seconds: float
    limit: int | None

    @property
    def num_draft_tokens(self) -> int:
        """K."""
        num_draft_tokens = fixed_draft_tokens(self.config)
        assert num_draft_tokens is not None, "set by align_config"
        return num_draft_tokens

    @property
    def sampling(self) -> SamplingParams:
        """How requests sample, apart from the temperature."""
        own = self.config.sampling
        seed = self.config.engine.seed if own.seed is None else own.seed
        return SamplingParams(**(own.model_dump() | {"seed": seed}))


def align_config(loaded: LoadedConfig, draft_tokens: int | None) -> Config:
    """The configuration, with ``draft`` as proposer unless the user names another one.

    Raises:
        UserError: a proposer that drafts nothing or is not available, or several completions per prompt.
    """
    config, origins = loaded.config, loaded.origins
    if config.sampling.n != 1:
        raise UserError(f"sampling.n: align serves one completion per prompt (got {config.sampling.n})")
    proposer = "draft" if origins["proposer"] == "default" else config.proposer
    if proposer == "none":
        raise UserError("proposer: none drafts nothing, so there is nothing to measure (default: draft)")
    if proposer == AUTO or "," in proposer:
        raise UserError(f"proposer: {proposer} is several; align measures one at a time (default: draft)")
    tokens = ALIGN_TOKENS if origins["sampling.max_tokens"] == "default" else config.sampling.max_tokens
    return replaced(
        config,
        proposer=proposer,
        num_draft_tokens=draft_tokens or fixed_draft_tokens(config) or DRAFT_TOKENS,
        sampling=config.sampling.model_dump() | {"max_tokens": tokens},
    )


def load_prompts(plan: AlignPlan) -> list[tuple[str, WorkloadPrompt]]:
    """(category, prompt) of all workloads; categories in turn, so that running out of time is fair to all.

    Raises:
        UserError: a workload that cannot be read.
    """
    by_category: dict[str, list[WorkloadPrompt]] = {}
    for workload in plan.workloads:
        for prompt in in_turn(_by_category(load_workload(workload)))[: plan.limit]:
            name = prompt.category if len(plan.workloads) == 1 else f"{_short(workload)}: {prompt.category}"
            by_category.setdefault(name, []).append(prompt)
    named = {name: [(name, prompt) for prompt in prompts] for name, prompts in by_category.items()}
    return in_turn(named)


def in_turn(groups: Mapping[str, Sequence[Item]]) -> list[Item]:
    """The first of each group, the second of each, and so on."""
    missing = object()
    rounds = zip_longest(*groups.values(), fillvalue=missing)
    return [item for each in rounds for item in each if item is not missing]  # type: ignore[misc]


def _by_category(prompts: Sequence[WorkloadPrompt]) -> dict[str, list[WorkloadPrompt]]:
    groups: dict[str, list[WorkloadPrompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.category, []).append(prompt)
    return groups


def _short(workload: str) -> str:
    """A file's name without its folder: the table is narrow."""
    return workload.rpartition("/")[2]
