"""What the ingress counts, per variant."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from foredraft.scheduler.serve.standing import Standings

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class IngressMetrics:
    """Counters and gauges with the label ``variant``."""

    def __init__(self, standings: Standings) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        name = "foredraft_ingress_"
        label = ["variant"]
        self.requests = Counter(f"{name}requests", "Answers.", [*label, "status"], registry=registry)
        self.errors = Counter(
            f"{name}errors", "Failed requests, by reason.", [*label, "reason"], registry=registry
        )
        self.tokens = Counter(
            f"{name}tokens", "Tokens, where the answer says its usage.", [*label, "kind"], registry=registry
        )
        self.seconds = Histogram(
            f"{name}request_seconds", "Whole requests.", label, registry=registry, buckets=SECONDS
        )
        self.first_piece_seconds = Histogram(
            f"{name}first_piece_seconds", "To the first piece.", label, registry=registry, buckets=SECONDS
        )
        self.open_requests = Gauge(f"{name}open_requests", "Under way.", label, registry=registry)
        registry.register(_StandingCollector(standings))

    def page(self) -> str:
        """In Prometheus' text format."""
        return str(generate_latest(self._registry).decode())


class _StandingCollector:
    """Which variants are in, as they stand when someone looks."""

    def __init__(self, standings: Standings) -> None:
        self._standings = standings

    def collect(self) -> Iterable[Metric]:
        is_in = GaugeMetricFamily(
            "foredraft_ingress_variant_in", "1 = in, 0 = taken out.", labels=["variant"]
        )
        taken_out = CounterMetricFamily(
            "foredraft_ingress_variant_taken_out", "How often it was taken out.", labels=["variant"]
        )
        for name, standing in self._standings.of.items():
            is_in.add_metric([name], float(standing.out_reason is None))
            taken_out.add_metric([name], standing.num_taken_out)
        return is_in, taken_out
