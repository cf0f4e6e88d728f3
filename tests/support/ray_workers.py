"""Small actors for tests of supervision, and plans for them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from foredraft.scheduler.cluster.worker import WorkerSpec
from foredraft.scheduler.placement.plan import Bundle, MemorySplit, WorkerPlan

NO_MEMORY = MemorySplit(0, 0, 0, 0)


def worker_plan(*bundles: Bundle, strategy: str = "PACK") -> WorkerPlan:
    return WorkerPlan("draft", bundles, strategy, 0.0, NO_MEMORY)


def gpu_bundle(gpus: float = 1, cpus: float = 0, **more: object) -> Bundle:
    return Bundle(gpus, cpus, 0, "", **more)


def gpu_plan(gpus: float = 1) -> WorkerPlan:
    return worker_plan(gpu_bundle(gpus))


class ToyWorker:
    """Answers checks, until it is told otherwise.

    Args:
        broken: its constructor raises.
        hangs_file: while this file exists, checks hang.
    """

    def __init__(self, broken: bool = False, hangs_file: str = "") -> None:
        if broken:
            raise ValueError("this worker is broken")
        self._hangs_file = hangs_file
        self.drained = False

    def check(self, timeout_s: float) -> dict[str, object]:
        while self._hangs_file and Path(self._hangs_file).exists():
            time.sleep(0.05)
        return {"pid": os.getpid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", "")}

    def drain(self, timeout_s: float) -> bool:
        self.drained = True
        return True


def toy_spec(name: str = "draft-0", plan: WorkerPlan | None = None, **arguments: object) -> WorkerSpec:
    return WorkerSpec(name, "draft", ToyWorker, plan or gpu_plan(), arguments, max_concurrency=4)
