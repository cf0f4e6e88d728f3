"""Clusters and requests for the tests of placement, made up and random."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from foredraft.scheduler.hardware_model.hardware import GPUS
from foredraft.scheduler.hardware_model.language_models import MODELS
from foredraft.scheduler.placement.models import GIB, ModelNeed, Request
from foredraft.scheduler.placement.shape import Cluster, Node

GB = 10**9


def need(name: str, **values: Any) -> ModelNeed:
    size = MODELS[name]
    return ModelNeed(size, int(size.num_params * 2), size.kv_values * 2, **values)


def node(name: str, gpus: int, gpu: str = "h100", cpus: int = 64, ram_gb: float = 500, **labels: str) -> Node:
    return Node(name, gpus, GPUS[gpu] if gpus else None, cpus, int(ram_gb * GB), gpu, labels)


def cluster(*nodes: Node) -> Cluster:
    return Cluster(nodes)


def request(**values: Any) -> Request:
    given = {"target": need("llama-3.1-8b"), "draft": need("llama-3.2-1b")} | values
    return Request(**given)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    gpus = draw(st.sampled_from([0, 1, 2, 3, 4, 8]))
    kind = draw(st.sampled_from(sorted(GPUS)))
    gpu = replace(GPUS[kind], memory=draw(st.sampled_from([16e9, 24e9, 48e9, 80e9, 141e9])))
    labels = draw(st.sampled_from([{}, {}, {"pool": "a"}]))
    ram = draw(st.sampled_from([1, 8, 64, 512])) * GIB
    return Node(name, gpus, gpu, draw(st.sampled_from([0, 1, 4, 16, 64])), ram, kind, labels)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = [f"n{number}" for number in range(draw(st.integers(1, 5)))]
    round_trip_s = draw(st.sampled_from([5e-5, 2e-4, 5e-3]))
    return Cluster(tuple(draw(nodes(name)) for name in names), round_trip_s)


@st.composite
def better(draw: st.DrawFn, worse: Cluster) -> Cluster:
    """``worse``, with more of something: every figure is at least as good."""
    changed = list(worse.nodes)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(changed)))
        if place == len(changed):
            changed.append(draw(nodes(f"new{place}")))
        else:
            changed[place] = _improved(draw, changed[place])
    round_trip_s = worse.network_round_trip_s * draw(st.sampled_from([0.5, 1.0]))
    return Cluster(tuple(changed), round_trip_s)


def _improved(draw: st.DrawFn, old: Node) -> Node:
    assert old.gpu is not None
    what = draw(st.sampled_from(["gpus", "cpus", "ram", "memory", "speed"]))
    if what == "gpus":
        return replace(old, gpus=old.gpus + draw(st.integers(1, 4)))
    if what == "cpus":
        return replace(old, cpus=old.cpus + draw(st.integers(1, 32)))
    if what == "ram":
        return replace(old, memory_bytes=old.memory_bytes + draw(st.integers(1, 64)) * GIB)
    if what == "memory":
        return replace(old, gpu=replace(old.gpu, memory=old.gpu.memory * 1.5))
    faster = replace(old.gpu, bandwidth=old.gpu.bandwidth * 2, flops=old.gpu.flops * 1.5)
    return replace(old, gpu=faster)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    device = draw(st.sampled_from(["gpu", "gpu", "gpu", "cpu"]))
    wide = draw(st.sampled_from([1, 1, 2, 4])) if device == "gpu" else 1
    stages = draw(st.sampled_from([1, 1, 2])) if device == "gpu" else 1
    one = wide * stages == 1 and device == "gpu"
    share = draw(st.sampled_from([1.0, 0.5])) if one else 1.0
    labels = draw(st.sampled_from([{}, {}, {}, {"pool": "a"}]))
    target = need(
        draw(st.sampled_from(["llama-3.1-8b", "qwen2.5-0.5b"])),
        tensor_parallel=wide,
        pipeline_parallel=stages,
        gpu_share=share,
        labels=labels,
    )
    draft = _draft(draw, wide, share, one) if draw(st.integers(0, 3)) else None
    return Request(
        target,
        draft,
        "draft" if draft else draw(st.sampled_from(["none", "ngram", "early_exit"])),
        num_replicas=draw(st.integers(1, 7)),
        batch_size=draw(st.sampled_from([1, 8, 32])),
        context=draw(st.sampled_from([512, 4096])),
        acceptance=draw(st.sampled_from([(0.9, 0.9, 0.9), (0.6, 0.5, 0.4), (1.0, 1.0, 1.0, 1.0), (0.0,)])),
        device=device,
    )


def _draft(draw: st.DrawFn, wide: int, share: float, one: bool) -> ModelNeed:
    narrow = draw(st.sampled_from([number for number in (1, 2, 4) if wide % number == 0]))
    smaller = draw(st.sampled_from([share, share / 2])) if one else 1.0
    name = draw(st.sampled_from(["llama-3.2-1b", "qwen2.5-0.5b"]))
    return need(name, tensor_parallel=narrow, gpu_share=smaller)
