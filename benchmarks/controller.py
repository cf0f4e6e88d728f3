"""The controller of draft lengths alone: its time per step, and what it reaches on scripted loads.

    OMP_NUM_THREADS=1 python benchmarks/controller.py

Time: mean microseconds of the process per step, choosing and learning together, of batches whose requests
are accepted at random; with one member, and with three as in `proposer: auto`. Every step is repeated in
five equal runs and the quickest counts, since other work on the machine only ever adds.

Regret: speed as a share of the offline optimum and of plain decoding, mean over three runs of 400 steps.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from paired import print_json

from foredraft.proposers import Outcome
from foredraft.scheduler.speculation import NO_LIMIT, AdaptiveDraftLength, DraftBatch, Member, StepReport
from foredraft.scheduler.speculation.scripted_load import Load, ScriptedMember, play

NUM_STEPS = 400
NUM_RUNS = 5
ONE = [Member("draft", 8, 1, 0.0005)]
THREE = [Member("ngram", 16, 5), Member("draft", 8, 1, 0.0005), Member("early_exit", 8, 1, 0.001)]
PASSES: dict[str, Callable[[float], float]] = {
    "flat": lambda tokens: 1 + 0.01 * (tokens - 1),
    "steep": lambda tokens: 1 + 0.12 * (tokens - 1),
}
ACCEPTANCE: dict[str, Callable[[int, int], float]] = {
    "0": lambda step, request: 0.0,
    "0.3": lambda step, request: 0.3,
    "0.6": lambda step, request: 0.6,
    "0.9": lambda step, request: 0.9,
    "0.8, 0 in the middle": lambda step, request: 0.8 if not 133 <= step < 266 else 0.0,
    "0.9 / 0 every 10 steps": lambda step, request: 0.9 if step // 10 % 2 else 0.0,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--time-only", action="store_true", help="leave the scripted loads out")
    options = parser.parse_args()
    times = {}
    for members in (ONE, THREE):
        for batch in (1, 4, 16, 64):
            runs = np.array([step_times(batch, members) for _ in range(NUM_RUNS)])
            choosing, learning = runs.min(axis=0).mean(axis=1)
            print(
                f"{len(members)} members, batch {batch:3}: choosing {choosing * 1e6:.0f}, learning "
                f"{learning * 1e6:.0f}, together {(choosing + learning) * 1e6:.0f} us per step"
            )
            times[f"{len(members)} members, batch {batch}"] = (choosing + learning) * 1e6
    print_json("controller", vars(options), times)
    if not options.time_only:
        print_regret()


def print_regret() -> None:
    print(f"\n{'acceptance':24}{'pass':7}{'drafting step':15}{'of the optimum':16}of plain")
    for name, law in ACCEPTANCE.items():
        for shape, pass_s in PASSES.items():
            for draft_s in (0.002, 0.12):
                load = Load(
                    [ScriptedMember(law, draft_s=(draft_s, 0.0), unread_s=draft_s / 25)], pass_s=pass_s
                )
                runs = [play(load, calibrated(load), NUM_STEPS, seed) for seed in range(3)]
                best = statistics.mean(run.against_best() for run in runs)
                plain = statistics.mean(run.against_plain() for run in runs)
                print(f"{name:24}{shape:7}{draft_s:<15}{best:<16.3f}{plain:.3f}")


def calibrated(load: Load) -> AdaptiveDraftLength:
    seconds = {size: load.pass_s(size) for size in (1, 2, 4, 8, 16, 32, 64)}
    (one,) = load.members
    return AdaptiveDraftLength([Member("scripted", one.max_draft_tokens, 1, one.draft_s[0])], seconds)


def step_times(batch: int, members: list[Member]) -> tuple[list[float], list[float]]:
    """Seconds of ``choose`` and of ``observe``, step by step; the same steps in every run."""
    rng = np.random.default_rng(0)
    controller = AdaptiveDraftLength(members, {1: 0.01, 64: 0.02, 512: 0.1})
    names = [f"request {place}" for place in range(batch)]
    context = [100] * batch
    choosing: list[float] = []
    learning: list[float] = []
    for _ in range(NUM_STEPS):
        prospects = [rng.integers(0, one.num_prospects + 1, batch).tolist() for one in members]
        requests = DraftBatch(names, [1_000] * batch, context, [NO_LIMIT] * batch, prospects)
        started = time.process_time()
        choice = controller.choose(requests)
        choosing.append(time.process_time() - started)
        accepted = [int(rng.binomial(length, 0.6)) for length in choice.lengths]
        columns = zip(names, context, choice.lengths, accepted, strict=True)
        outcomes = [
            Outcome(name, start, length, length, kept, (0,) * (kept + 1))
            for name, start, length, kept in columns
        ]
        context = [start + kept + 1 for start, kept in zip(context, accepted, strict=True)]
        num_tokens = batch + sum(choice.lengths)
        propose_s = [0.0005] * len(members)
        report = StepReport(outcomes, choice, propose_s, 0.01, 0.012 + num_tokens * 1e-4, num_tokens)
        started = time.process_time()
        controller.observe(report)
        learning.append(time.process_time() - started)
    return choosing, learning


if __name__ == "__main__":
    main()
