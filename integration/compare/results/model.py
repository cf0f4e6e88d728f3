"""The result document of the embedded engine. The JSON schema is made from these classes and texts."""

from __future__ import annotations

from typing import Any, Literal

from foredraft.integration.compare.results.base import CellRow, ComparisonDocument, ManyWorkloadsRow, Part


class FirstDifference(Part):
    """The difference from the baseline that decided ``outputs_equal``."""

    prompt_id: str
    """Name of the prompt."""
    position: int
    """Index of the first differing output token."""
    logit_gap: float | None
    """How far apart the target's logits of the two tokens are; null where one output merely ends earlier."""
    rounding: float | None
    """Largest change of any logit there between a one-token and a (K+1)-token pass."""


class EngineLoad(Part):
    """How the engine was driven."""

    batch_size: int
    """Requests in flight, at most where ``arrivals_per_s`` says how they come."""
    arrivals_per_s: float | None
    """Poisson arrivals; null in a closed loop. With arrivals the speedup is that of the mean latency."""

    @property
    def load(self) -> str:
        """In words."""
        return f"batch {self.batch_size}" if self.arrivals_per_s is None else f"{self.arrivals_per_s:g}/s"

    @property
    def load_number(self) -> float:
        """The load as a number."""
        return self.batch_size if self.arrivals_per_s is None else self.arrivals_per_s


class ResultRow(EngineLoad, CellRow):
    """What one configuration did in one cell: one workload, batch size and temperature."""

    config: str
    """Name of the configuration; ``none`` is the baseline, plain decoding."""
    proposer: str
    """What drafts in it."""
    num_draft_tokens: int
    """Drafted per request and step at most (K)."""
    lengths_chosen: bool = False
    """Whether K is but the most: how far is drafted is chosen step by step."""
    temperature: float
    """Of every request."""
    tokens_per_s: float
    """Output tokens over wall time, reading the prompts included."""
    acceptance_length: float
    """Tokens per target pass of a request, the recovered or bonus one included: 1 = nothing accepted."""
    drafted_tokens: int
    """All that was drafted."""
    accepted_tokens: int
    """Of these kept."""
    wasted_tokens: int
    """Of these thrown away."""
    emitted_tokens: int
    """Tokens delivered."""
    proposer_faults: int
    """How often the proposer failed; its drafts were left out."""
    outputs_equal: Literal["near_tie"] | bool | None
    """Against the baseline's tokens; null where equal tokens are not promised: the law is not checked."""
    first_difference: FirstDifference | None
    """Where the outputs part; null where they do not."""
    law_p_value: float | None
    """How likely sampled tokens this far from the target's law are, over all cells of the configuration at
    this temperature; null where it was not checked, or in too few tokens."""
    law_tokens: int | None
    """How many tokens were held against the law, over the same cells; null where it was not checked."""
    ideal_speedup: float | None
    """Speedup of the decoding steps if, at this acceptance, drafting and the target pass were all that costs:
    tokens per step over (T_verify + T_draft) / T_1 (Leviathan et al., 2023); null for the baseline, and where
    vLLM serves."""
    share_of_ideal: float | None
    """Speedup over ideal speedup; what is missing goes into reading prompts, sampling and bookkeeping."""
    time_split: dict[str, float] | None
    """Shares of the engine's time: propose, forward, sample, rest. vLLM does not tell its forward, which is
    then in the rest; null when none was measured."""
    memory_bytes: int | None
    """What the engine holds besides the target's weights: caches, and the weights of a draft or head; null
    where vLLM serves."""
    num_prompts: int
    """Requests served."""
    seconds: float
    """Wall time of these blocks."""

    @property
    def name(self) -> str:
        return self.config

    @property
    def k(self) -> str:
        """The number of draft tokens, or that it is but the most."""
        return f"<= {self.num_draft_tokens}" if self.lengths_chosen else str(self.num_draft_tokens)


class OverallRow(EngineLoad, ManyWorkloadsRow):
    """One configuration over all workloads, each with the same weight: the geometric mean of the speedups."""

    config: str
    """Name of the configuration."""

    @property
    def name(self) -> str:
        return self.config


class ResultDocument(ComparisonDocument):
    """The result of ``foredraft compare``."""

    results: list[ResultRow]
    """One per configuration and cell."""
    overall: list[OverallRow]
    """Over all workloads; empty where there is only one."""
    configs: dict[str, dict[str, Any]]
    """Every option of each configuration."""
    workloads: dict[str, str]
    """Per workload the SHA-256 of what was asked: results of unequal requests are not compared."""
