"""What the result documents of both modes share. The JSON schemas are made from these classes and texts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from foredraft.integration.compare.statistics.verdict import Verdict


class Part(BaseModel):
    """Base of all parts: no unknown field, no NaN, docstrings of the fields as their descriptions."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


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


class ComparedRow(Speedup):
    """A row as tables, plots and advice see it, whatever was compared."""

    temperature: float | None
    """Of every request; null where recorded requests bring their own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Of what was compared."""

    @property
    @abstractmethod
    def load(self) -> str:
        """How many requests at once, in words."""

    @property
    def is_baseline(self) -> bool:
        return self.verdict is None

    @property
    def conditions(self) -> tuple[str, ...]:
        """Load and temperature, in words."""
        return (self.load,) if self.temperature is None else (self.load, f"temperature {self.temperature:g}")


class CellRow(ComparedRow):
    """One thing compared in one cell: one workload, load and temperature."""

    workload: str
    """Name of the prompt set, or ``set/category``."""
    tokens_per_s: float | None
    """Output tokens over wall time, reading the prompts included; null where nothing was served."""
    acceptance_rate: float | None
    """Accepted over drafted tokens; null where nothing was drafted, or a server does not tell."""
    acceptance_length: float | None
    """Tokens per target pass of a request, the recovered or bonus one included: 1 = nothing accepted; null
    where a server does not tell."""
    position_acceptance: list[float | None]
    """Per place in the draft: accepted over drafted there; null where nothing was drafted."""
    time_to_first_token_s: Percentiles | None
    """Per request, reading the prompt included; null where no token came out."""
    time_per_output_token_s: Percentiles | None
    """Per request, the first token left out; null where no request had a second."""
    num_blocks: int
    """Paired blocks behind the figures."""

    @property
    @abstractmethod
    def load_number(self) -> float | None:
        """The load as a number; ``None`` where it is none."""


class ManyWorkloadsRow(ComparedRow):
    """One thing over all workloads, each with the same weight: the geometric mean of the speedups."""

    num_workloads: int
    """How many speedups are behind it."""


class HeadToHead(Speedup):
    """Two beside the baseline, over all workloads: the speedup is that of the one over the other."""

    config: str
    """Name of the one."""
    against: str
    """Name of the other."""
    conditions: list[str]
    """Load and temperature, in words."""
    num_workloads: int
    """How many workloads are behind it."""


class Regression(Part):
    """A cell that is worse than in the result compared with."""

    config: str
    """Name of the configuration, or of the server."""
    workload: str
    """Name of the prompt set."""
    conditions: list[str]
    """Load and temperature, in words."""
    what: Literal["slower than before", "output differs now", "cannot be compared now"]
    """What got worse."""
    before: float
    """Speedup then."""
    now: float | None
    """Speedup now; null where nothing could be compared."""

    @property
    def sentence(self) -> str:
        where = ", ".join([self.workload, self.config, *self.conditions])
        now = "none" if self.now is None else f"{self.now:.2f}x"
        return f"{where}: {self.what} ({self.before:.2f}x, now {now})"


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
    """What was checked of the outputs, most of all above temperature 0."""


class ComparisonDocument(Part):
    """What the result of any comparison says besides its rows."""

    schema_version: Literal[2] = 2
    """Of this document."""
    head_to_head: list[HeadToHead]
    """Each two that are compared with the baseline, by the blocks that both served."""
    recommendation: str
    """What to run, in a paragraph."""
    regressions: list[Regression] | None
    """Against ``--baseline``; null without one."""
    baseline_notes: list[str] | None
    """What could not be held against ``--baseline``, and what had other options then; null without one."""
    design: Design
    """How it was measured."""
    environment: dict[str, Any]
    """Versions, hardware, and how the target ran."""
    command: str
    """What was called."""
    commit: str | None
    """Of the checkout that foredraft ran from, ``-dirty`` where files had changed; null outside of one."""
    seed: int
    """Where the seeds of the requests, the orders of prompts and of what is compared start."""
    started_at: str
    """Time of the start, ISO 8601."""
    seconds: float
    """How long the run took, loading included."""
    interrupted: bool
    """Whether blocks are missing because the user ended the run."""
