"""What the result of an online comparison holds; its JSON schema is made from these classes."""

from __future__ import annotations

from foredraft.integration.compare.load import Load
from foredraft.integration.compare.results.base import (
    CellRow,
    ComparisonDocument,
    ManyWorkloadsRow,
    Part,
    Percentiles,
)


class ServerLoad(Part):
    """How the servers were driven."""

    concurrency: int
    """Requests in flight at most."""
    arrivals_per_s: float | None
    """Poisson arrivals; null in a closed loop and where they were recorded. With arrivals the speedup is that
    of the mean latency."""
    recorded_arrivals: bool
    """Whether requests arrived as recorded."""

    @property
    def as_load(self) -> Load:
        return Load(self.concurrency, self.arrivals_per_s, self.recorded_arrivals)


class OnlineRow(ServerLoad, CellRow):
    """What one server did in one cell: one workload, load and temperature. Where no block could be compared,
    as ``num_blocks`` says, the speedup is 1 and means nothing."""

    endpoint: str
    """Name of the server; the first one is the baseline."""
    url: str
    """Its address."""
    model: str
    """The model asked for."""
    latency_s: Percentiles | None
    """Per request, from its arrival to its end."""
    num_compared_texts: int | None
    """Requests that both this server and the baseline answered; null where not all temperatures are 0."""
    num_equal_texts: int | None
    """Of these, those whose text was that of the baseline."""
    num_requests: int
    """Requests sent."""
    num_failed: int
    """Of these failed; blocks with a failure are not compared."""
    num_refused: int
    """Of these not taken by the server; no server is given such a prompt again."""
    first_error: str | None
    """What the first failure was."""

    @property
    def name(self) -> str:
        return self.endpoint

    @property
    def load(self) -> str:
        return self.as_load.label

    @property
    def load_number(self) -> float | None:
        if self.recorded_arrivals:
            return None
        return self.concurrency if self.arrivals_per_s is None else self.arrivals_per_s


class OnlineOverallRow(ServerLoad, ManyWorkloadsRow):
    """One server over all workloads, each with the same weight: the geometric mean of the speedups."""

    endpoint: str
    """Name of the server."""

    @property
    def name(self) -> str:
        return self.endpoint

    @property
    def load(self) -> str:
        return self.as_load.label


class OnlineDocument(ComparisonDocument):
    """The result of ``foredraft compare --endpoint``."""

    results: list[OnlineRow]
    """One per server and cell."""
    overall: list[OnlineOverallRow]
    """Over all workloads; empty where there is only one."""
    max_tokens: int
    """Asked for per request, where recorded traffic does not say."""
    workloads: dict[str, str]
    """Per workload the SHA-256 of what was asked: results of unequal requests are not compared."""
