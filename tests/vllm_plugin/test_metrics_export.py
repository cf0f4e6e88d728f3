"""What a drafter counts of its lengths is found again under the names of /metrics. Needs no engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.multiprocess import MultiProcessCollector

from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.vllm.metrics_export import FOLDER_VARIABLE, MetricsExport

pytestmark = pytest.mark.vllm


def test_lengths_members_and_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    export = MetricsExport("toy", "auto")
    metrics = EngineMetrics(member_names=["ngram", "early_exit"], num_probes=3, predicted_tokens_per_s=80.0)
    metrics.length_counts.update([0, 0, 4])
    metrics.member_counts.update([1])
    export.write(metrics)
    metrics.predicted_tokens_per_s = 91.5
    metrics.length_counts.update([4])
    export.write(metrics)
    found = {
        (sample.name, sample.labels.get("length") or sample.labels.get("member")): sample.value
        for metric in MultiProcessCollector(None, str(tmp_path)).collect()
        for sample in metric.samples
    }
    assert found["foredraft_probes_total", None] == 3
    assert found["foredraft_length_counts_total", "0"] == 2
    assert found["foredraft_length_counts_total", "4"] == 2
    assert found["foredraft_member_counts_total", "early_exit"] == 1
    assert found["foredraft_predicted_tokens_per_s", None] == 91.5
