"""What the result document holds. The JSON schema is made from these classes and their texts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from foredraft.integration.compare.statistics.verdict import Verdict


class Part(BaseModel):
    """Base of all parts: no unknown field, no NaN, docstrings of the fields as their descriptions."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


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


class Percentiles(Part):
    """Of seconds, over requests."""

    median: float
    """Half of the requests took no longer."""
    p95: float
    """95 % took no longer."""
    p99: float
    """99 % took no longer."""


class Speedup(Part):
    """Throughput over the baseline's."""

    speedup: float
    """Trimmed mean over blocks of the logarithm of the paired ratio, as a ratio; 1 for the baseline."""
    speedup_low: float | None
    """Lower end of the interval at ``design.interval_level``; null where the blocks do not suffice."""
    speedup_high: float | None
    """Upper end."""
    standard_error: float | None
    """Of the logarithm of the speedup; null where the blocks do not suffice."""
    freedom: float
    """Degrees of freedom behind the standard error."""
    verdict: Verdict | None
    """What the interval and the output check say together; null for the baseline."""


class ResultRow(Speedup):
    """What one configuration did in one cell: one workload, batch size and temperature."""

    config: str
    """Name of the configuration; ``none`` is the baseline, plain decoding."""
    proposer: str
    """What drafts in it."""
    workload: str
    """Name of the prompt set, or ``set/category``."""
    batch_size: int
    """Requests in flight."""
    temperature: float
    """Of every request."""
    num_draft_tokens: int
    """Drafted per request and step at most (K)."""
    tokens_per_s: float
    """Output tokens over wall time, reading the prompts included."""
    time_to_first_token_s: Percentiles | None
    """Per request, reading the prompt included; null where no token came out."""
    time_per_output_token_s: Percentiles | None
    """Per request, the first token left out; null where no request had a second."""
    acceptance_rate: float | None
    """Accepted over drafted tokens; null when nothing was drafted."""
    acceptance_length: float
    """Tokens per target pass of a request, the recovered or bonus one included: 1 = nothing accepted."""
    position_acceptance: list[float | None]
    """Per place in the draft: accepted over drafted there; null where nothing was drafted."""
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
    this temperature; null where it was not checked."""
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
    num_blocks: int
    """Paired blocks behind the figures."""
    seconds: float
    """Wall time of these blocks."""


class OverallRow(Speedup):
    """One configuration over all workloads, each with the same weight: the geometric mean of the speedups."""

    config: str
    """Name of the configuration."""
    batch_size: int
    """Requests in flight."""
    temperature: float
    """Of every request."""
    num_workloads: int
    """How many speedups are behind it."""


class Regression(Part):
    """A cell that is worse than in the result compared with."""

    config: str
    """Name of the configuration."""
    workload: str
    """Name of the prompt set."""
    batch_size: int
    """Requests in flight."""
    temperature: float
    """Of every request."""
    what: Literal["slower than before", "output differs now"]
    """What got worse."""
    before: float
    """Speedup then."""
    now: float
    """Speedup now."""


class Design(Part):
    """How the figures came about."""

    interval_level: float
    """Level of each interval. All intervals of the run, at every look, hold together with 95 %."""
    min_effect: float
    """Differences below this share are not called."""
    looks: list[int] | None
    """Numbers of blocks at which a cell may end; null in a fixed design."""
    repeats: int | None
    """How often each prompt was served in a fixed design."""
    budget_s: float | None
    """Seconds after which no further block began; null in a fixed design."""
    prefix_cache: str
    """How prompts that begin alike were treated."""
    sampled_output: str
    """What was checked where the temperature is above 0."""


class ResultDocument(Part):
    """The result of ``foredraft compare``."""

    schema_version: Literal[2] = 2
    """Of this document."""
    results: list[ResultRow]
    """One per configuration and cell."""
    overall: list[OverallRow]
    """Over all workloads; empty where there is only one."""
    recommendation: str
    """What to run, in a paragraph."""
    regressions: list[Regression] | None
    """Against ``--baseline``; null without one."""
    design: Design
    """How it was measured."""
    configs: dict[str, dict[str, Any]]
    """Every option of each configuration."""
    environment: dict[str, Any]
    """Versions, hardware, and how the target ran."""
    command: str
    """What was called."""
    commit: str | None
    """Of the checkout that foredraft ran from, ``-dirty`` where files had changed; null outside of one."""
    seed: int
    """Where the seeds of the requests, the orders of prompts and of configurations start."""
    started_at: str
    """Time of the start, ISO 8601."""
    seconds: float
    """How long the run took, loading included."""
    interrupted: bool
    """Whether blocks are missing because the user ended the run."""
