"""The Prometheus page: what the engine counts, and what the server does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from foredraft.integration.counters import COUNTERS, LABELS, PREDICTED, PREDICTED_HELP, counter_values
from foredraft.integration.engine import Engine
from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.server.engine_loop import EngineLoop
from foredraft.integration.server.settings import ServerSettings

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
DRAFTS = "foredraft_spec_decode_num_"
"""Counters under the names of vLLM's, which ``foredraft compare`` reads from any server."""


class ServerMetrics:
    """Counters of one server."""

    def __init__(self, engine: Engine, loop: EngineLoop, settings: ServerSettings) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(engine, loop, settings))
        self.answers = Counter(
            "foredraft_server_answers", "Answers.", ["path", "status"], registry=self._registry
        )
        self.tokens = Counter("foredraft_server_tokens", "Tokens served.", ["kind"], registry=self._registry)
        self.seconds = _histogram("foredraft_server_answer_seconds", "Finished answers.", self._registry)
        self.first_token_seconds = _histogram(
            "foredraft_server_first_token_seconds", "To the first token of a prompt.", self._registry
        )
        self.open_prompts = Gauge(
            "foredraft_server_open_prompts", "Waiting or running.", registry=self._registry
        )
        self.open_prompts.set_function(lambda: loop.num_open)

    def note_answer(self, seconds: float, usage: Mapping[str, int]) -> None:
        """Count a finished answer."""
        self.seconds.observe(seconds)
        self.tokens.labels("prompt").inc(usage["prompt_tokens"])
        self.tokens.labels("completion").inc(usage["completion_tokens"])

    def page(self) -> bytes:
        """In Prometheus' text format."""
        return bytes(generate_latest(self._registry))


def _histogram(name: str, text: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, text, registry=registry, buckets=SECONDS)


class _EngineCollector:
    """The engine's counters as they stand when someone looks."""

    def __init__(self, engine: Engine, loop: EngineLoop, settings: ServerSettings) -> None:
        self._engine = engine
        self._loop = loop
        self._labels = {"model_name": settings.model_names[0], "proposer": settings.proposer}

    def collect(self) -> Iterable[Metric]:
        metrics = _snapshot(self._engine.metrics)
        families: dict[str, CounterMetricFamily] = {}
        for name, label, value in counter_values(metrics):
            own = {} if label is None else {LABELS[name]: label}
            family = families.setdefault(name, self._family(name, COUNTERS[name], *own))
            family.add_metric([*self._labels.values(), *own.values()], value)
        yield from families.values()
        if metrics.predicted_tokens_per_s is not None:
            yield self._gauge(PREDICTED, PREDICTED_HELP, metrics.predicted_tokens_per_s)
        if self._engine.num_draft_tokens:
            yield from self._draft_counts(metrics)
        is_up = float(self._loop.failure is None)
        yield self._gauge("foredraft_engine_up", "0 = the engine has failed.", is_up)

    def _draft_counts(self, metrics: EngineMetrics) -> Iterable[Metric]:
        num_drafts = metrics.verified_per_position[0] if metrics.verified_per_position else 0
        counts = {
            "drafts": ("Drafts verified.", num_drafts),
            "draft_tokens": ("Tokens drafted.", metrics.num_drafted_tokens),
            "accepted_tokens": ("Drafted tokens that were kept.", metrics.num_accepted_tokens),
        }
        for name, (text, value) in counts.items():
            family = self._family(f"{DRAFTS}{name}", text)
            family.add_metric(list(self._labels.values()), value)
            yield family
        places = self._family(f"{DRAFTS}accepted_tokens_per_pos", "The same by place.", "position")
        for position, value in enumerate(metrics.accepted_per_position):
            places.add_metric([*self._labels.values(), str(position)], value)
        yield places

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(name, text, labels=list(self._labels))
        gauge.add_metric(list(self._labels.values()), value)
        return gauge

    def _family(self, name: str, text: str, *more: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, text, labels=[*self._labels, *more])


def _snapshot(metrics: EngineMetrics) -> EngineMetrics:
    """A copy that holds still: the engine's thread goes on counting meanwhile."""
    accepted = list(metrics.accepted_per_position)
    verified = list(metrics.verified_per_position)[: len(accepted)]
    return replace(
        metrics,
        accepted_per_position=accepted[: len(verified)],
        verified_per_position=verified,
        length_counts=metrics.length_counts.copy(),
        member_counts=metrics.member_counts.copy(),
    )
