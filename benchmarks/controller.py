"""The controller of draft lengths alone: its time per step, and what it reaches on scripted loads.

    OMP_NUM_THREADS=1 python benchmarks/controller.py

Regret: speed as a share of the offline optimum and of plain decoding, mean over three runs of 400 steps.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from scripted_load import Load, play

from foredraft.proposers import Outcome
from foredraft.scheduler import AdaptiveDraftLength, DraftRequest, StepReport

NUM_STEPS = 400
PASSES = {
    "flat": lambda tokens: 1 + 0.01 * (tokens - 1),
    "steep": lambda tokens: 1 + 0.12 * (tokens - 1),
}
ACCEPTANCE = {
    "0": lambda step, request: 0.0,
    "0.3": lambda step, request: 0.3,
    "0.6": lambda step, request: 0.6,
    "0.9": lambda step, request: 0.9,
    "0.8, 0 in the middle": lambda step, request: 0.8 if not 133 <= step < 266 else 0.0,
    "0.9 / 0 every 10 steps": lambda step, request: 0.9 if step // 10 % 2 else 0.0,
}


def main() -> None:
    for batch in (1, 16, 64):
        choosing, learning = step_times(batch)
        print(f"batch {batch:3}: choosing {choosing * 1e6:.0f} us, learning {learning * 1e6:.0f} us per step")
    print(f"\n{'acceptance':24}{'pass':7}{'drafting step':15}{'of the optimum':16}of plain")
    for acceptance, law in ACCEPTANCE.items():
        for shape, pass_s in PASSES.items():
            for draft_s in (0.002, 0.12):
                load = Load(law, pass_s=pass_s, draft_s=(draft_s, 0.0), unread_s=draft_s / 25)
                runs = [play(load, calibrated(load), NUM_STEPS, seed) for seed in range(3)]
                best = statistics.mean(run.against_best() for run in runs)
                plain = statistics.mean(run.against_plain() for run in runs)
                print(f"{acceptance:24}{shape:7}{draft_s:<15}{best:<16.3f}{plain:.3f}")


def calibrated(load: Load) -> AdaptiveDraftLength:
    seconds = {size: load.pass_s(size) for size in (1, 2, 4, 8, 16, 32, 64)}
    return AdaptiveDraftLength(load.max_draft_tokens, seconds, load.draft_s[0])


def step_times(batch: int) -> tuple[float, float]:
    """Mean seconds of ``draft_lengths`` and of ``observe``."""
    rng = np.random.default_rng(0)
    controller = AdaptiveDraftLength(8, {1: 0.01, 64: 0.02, 512: 0.1}, 0.0005)
    choosing, learning = [], []
    for step in range(NUM_STEPS):
        requests = [DraftRequest(str(place), 1_000, 100 + 3 * step) for place in range(batch)]
        started = time.perf_counter()
        lengths = controller.draft_lengths(requests)
        choosing.append(time.perf_counter() - started)
        outcomes = []
        for request, length in zip(requests, lengths, strict=True):
            accepted = int(rng.integers(0, length + 1))
            outcomes.append(
                Outcome(
                    request.request_id, request.context_len, length, length, accepted, (0,) * (accepted + 1)
                )
            )
        num_tokens = batch + sum(lengths)
        report = StepReport(outcomes, lengths, 0.0005, 0.01, 0.01 + num_tokens * 1e-4, num_tokens)
        started = time.perf_counter()
        controller.observe(report)
        learning.append(time.perf_counter() - started)
    return statistics.mean(choosing), statistics.mean(learning)


if __name__ == "__main__":
    main()
