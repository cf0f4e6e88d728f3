"""The drafter's counters on the server's /metrics, beside vLLM's own.

The counters live in a worker process, the page in another one. Between them is a folder with a small
memory-mapped file per drafter, in the format that prometheus_client has for several processes. It is the
folder that vLLM has anyway where several API servers run; else one that the process of the server makes. No
part of vLLM is patched for this.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

from foredraft.integration.counters import COUNTERS, LABELS, PREDICTED, PREDICTED_HELP, counter_values
from foredraft.integration.metrics import EngineMetrics

FOLDER_VARIABLE = "FOREDRAFT_METRICS_DIR"
VLLM_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_made: list[tempfile.TemporaryDirectory[str]] = []


def offer_folder() -> None:
    """In the process of the server: a folder for the drafters of its workers, whose sums /metrics then shows.

    Once per process; the workers find it by the environment they inherit.
    """
    if _made or VLLM_FOLDER_VARIABLE in os.environ:
        return
    _made.append(tempfile.TemporaryDirectory(prefix="foredraft-metrics-"))
    os.environ[FOLDER_VARIABLE] = _made[0].name
    REGISTRY.register(MultiProcessCollector(None, _made[0].name))


def read_counters(folder: Path) -> dict[str, float]:
    """The counters of the drafters that write into a folder: name with ``_total`` -> sum over positions."""
    found: dict[str, float] = {}
    for metric in MultiProcessCollector(None, str(folder)).collect():
        for sample in metric.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


class MetricsExport:
    """Writes the counters of one drafter where the server reads them; without a folder, nowhere.

    Args:
        model_name: as vLLM's own metrics have it.
    """

    def __init__(self, model_name: str, proposer: str) -> None:
        self._labels = {"model_name": model_name, "proposer": proposer}
        self._predicted_key = _key(PREDICTED, PREDICTED, self._labels, PREDICTED_HELP)
        self._keys: dict[tuple[str, str | None], str] = {}
        self._written: dict[tuple[str, str | None], float] = {}
        self._counters = self._gauges = None
        folder = os.environ.get(FOLDER_VARIABLE) or os.environ.get(VLLM_FOLDER_VARIABLE)
        if folder and os.path.isdir(folder):
            self._counters = _new_file(folder, "counter_foredraft-")
            self._gauges = _new_file(folder, "gauge_mostrecent_foredraft-")

    def write(self, metrics: EngineMetrics) -> None:
        """Put the counters as they stand in place of what was there; some ten microseconds.

        In most steps most of them stand still, and writing takes longer than looking.
        """
        if self._counters is None or self._gauges is None:
            return
        for name, label, value in counter_values(metrics):
            if self._written.get((name, label)) != value:
                self._counters.write_value(self._key(name, label), value, 0.0)
                self._written[name, label] = value
        if metrics.predicted_tokens_per_s is not None:
            self._gauges.write_value(self._predicted_key, metrics.predicted_tokens_per_s, time.time())

    def _key(self, name: str, label: str | None) -> str:
        key = self._keys.get((name, label))
        if key is None:
            labels = self._labels if label is None else self._labels | {LABELS[name]: label}
            key = self._keys[name, label] = _key(name, f"{name}_total", labels, COUNTERS[name])
        return key


def _key(name: str, sample: str, labels: Mapping[str, str], text: str) -> str:
    key: str = mmap_key(name, sample, list(labels), list(labels.values()), text)
    return key


def _new_file(folder: str, prefix: str) -> Any:
    handle, path = tempfile.mkstemp(prefix=prefix, suffix=".db", dir=folder)
    os.close(handle)
    return MmapedDict(path)
