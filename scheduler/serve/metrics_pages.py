"""The Prometheus pages of many replicas as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class ReplicaPage:
    """What a replica shows."""

    variant: str
    replica: str
    text: str


def merged_pages(pages: Iterable[ReplicaPage]) -> str:
    """One page in which every sample says its variant and replica."""
    merged: dict[str, Metric] = {}
    for page in pages:
        for found in text_string_to_metric_families(page.text):
            metric = merged.setdefault(found.name, Metric(found.name, found.documentation, found.type))
            for sample in found.samples:
                labels = sample.labels | {"variant": page.variant, "replica": page.replica}
                metric.add_sample(sample.name, labels, sample.value)
    return str(generate_latest(_Metrics(list(merged.values()))).decode())


def acceptance_rate(pages: Iterable[ReplicaPage]) -> float | None:
    """Accepted over drafted tokens since the replicas began; ``None`` where they do not tell or draft."""
    totals = {"num_draft_tokens_total": 0.0, "num_accepted_tokens_total": 0.0}
    for page in pages:
        for metric in text_string_to_metric_families(page.text):
            for sample in metric.samples:
                for ending in totals:
                    if sample.name.endswith(f"spec_decode_{ending}"):
                        totals[ending] += sample.value
    drafted, accepted = totals.values()
    return accepted / drafted if drafted else None


class _Metrics:
    """What ``generate_latest`` reads in place of a registry."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
