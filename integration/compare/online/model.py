"""What the result of an online comparison holds; its JSON schema is made from these classes."""

from __future__ import annotations

from typing import Literal

from foredraft.integration.compare.results.model import Part, Percentiles, Speedup


class OnlineRow(Speedup):
    """What one server did in one cell: one workload, load and temperature."""

    endpoint: str
    """Name of the server; the first one is the baseline."""
    url: str
    """Its address."""
    model: str
    """The model asked for: the first that it lists."""
    workload: str
    """Name of the prompt set."""
    concurrency: int
    """Requests in flight at most."""
    arrivals_per_s: float | None
    """Poisson arrivals; null in a closed loop. With arrivals the speedup is that of the mean latency."""
    temperature: float
    """Of every request."""
    tokens_per_s: float | None
    """Output tokens over wall time; null when nothing was served without a failure."""
    time_to_first_token_s: Percentiles | None
    """Per request; null where none was served."""
    time_per_output_token_s: Percentiles | None
    """Per request, the first token left out."""
    latency_s: Percentiles | None
    """Per request, from its arrival to its end."""
    acceptance_rate: float | None
    """Accepted over drafted tokens by the server's own count; null where it does not tell."""
    num_equal_texts: int | None
    """Requests whose text was that of the baseline; null above temperature 0."""
    num_requests: int
    """Requests sent."""
    num_failed: int
    """Of these failed; blocks with a failure are not compared."""
    first_error: str | None
    """What the first failure was."""
    num_blocks: int
    """Paired blocks behind the speedup."""


class OnlineDocument(Part):
    """The result of ``foredraft compare --endpoint``."""

    schema_version: Literal[2] = 2
    """Of this document."""
    results: list[OnlineRow]
    """One per server and cell."""
    interval_level: float
    """Level of each interval. All intervals of the run, at every look, hold together with 95 %."""
    min_effect: float
    """Differences below this share are not called."""
    budget_s: float
    """Seconds after which no further block began."""
    max_tokens: int
    """Asked for per request."""
    sampled_output: str
    """What was checked of the output."""
    command: str
    """What was called."""
    commit: str | None
    """Of the checkout that foredraft ran from; null outside of one."""
    seed: int
    """Where the seeds of the requests and all orders start."""
    started_at: str
    """Time of the start, ISO 8601."""
    seconds: float
    """How long the run took."""
    interrupted: bool
    """Whether blocks are missing because the user ended the run."""
