"""What an n-gram draft costs: time of ``propose`` per request and step, time and memory of the index.

Random tokens, so nothing matches and every size is looked up and entered: the dearest case. Context lengths
take turns in blocks of steps, so that a slow spell of the machine hits them all. The median of each block is
one observation; given are their median and its 95 % interval from order statistics.

    OMP_NUM_THREADS=1 python benchmarks/ngram_propose.py
    OMP_NUM_THREADS=1 python benchmarks/ngram_propose.py --min-n 1 --max-n 8 --blocks 50

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import tracemalloc

import torch
from paired import median_interval, print_json

from foredraft.proposers import DraftContext
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import SamplingBatch

CONTEXT_LENGTHS = (1_000, 8_000, 32_000)
VOCAB_SIZE = 49_152
NUM_DRAFT_TOKENS = 5


class Run:
    """A batch of random contexts that grows by one token per request and step."""

    def __init__(self, batch_size: int, length: int, sizes: tuple[int, int]) -> None:
        self._rng = random.Random(length)
        self._proposer = NgramProposer(*sizes)
        self._tokens = [self._rng.choices(range(VOCAB_SIZE), k=length) for _ in range(batch_size)]
        zeros = torch.zeros(batch_size)
        self._context = DraftContext(
            request_ids=[f"request-{row}" for row in range(batch_size)],
            token_ids=self._tokens,
            max_draft_tokens=[NUM_DRAFT_TOKENS] * batch_size,
            sampling=SamplingBatch(temperature=zeros, request_keys=zeros, block_starts=zeros),
        )

    def propose_us(self) -> float:
        """Microseconds of one ``propose``, per request."""
        begin = time.perf_counter_ns()
        self._proposer.propose(self._context)
        return (time.perf_counter_ns() - begin) / 1e3 / len(self._tokens)

    def step_us(self) -> float:
        for row in self._tokens:
            row.append(self._rng.randrange(VOCAB_SIZE))
        return self.propose_us()


def measure_steps(sizes: tuple[int, int], blocks: int, steps: int) -> dict[int, dict[str, float]]:
    runs = {length: Run(1, length, sizes) for length in CONTEXT_LENGTHS}
    for run in runs.values():
        run.propose_us()
    medians: dict[int, list[float]] = {length: [] for length in runs}
    everything: dict[int, list[float]] = {length: [] for length in runs}
    for block in range(blocks):
        order = random.Random(block).sample(list(runs), len(runs))
        for length in order:
            times = [runs[length].step_us() for _ in range(steps)]
            medians[length].append(statistics.median(times))
            everything[length] += times
    return {
        length: median_interval(medians[length])
        | {"mean": statistics.fmean(everything[length]), "max": max(everything[length])}
        for length in runs
    }


def measure_index(sizes: tuple[int, int], repeats: int) -> dict[int, dict[str, float]]:
    """First ``propose`` of a prompt, in ms, and what it leaves allocated, in bytes per token."""
    results = {}
    for length in CONTEXT_LENGTHS:
        times = [Run(1, length, sizes).propose_us() / 1e3 for _ in range(repeats)]
        run = Run(1, length, sizes)
        tracemalloc.start()
        run.propose_us()
        num_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        results[length] = median_interval(times) | {"bytes_per_token": num_bytes / length}
    return results


def measure_batch(sizes: tuple[int, int], batch_size: int, steps: int) -> dict[str, float]:
    run = Run(batch_size, CONTEXT_LENGTHS[-1], sizes)
    first_us = run.propose_us()
    return {"batch_size": batch_size, "first_ms_per_request": first_us / 1e3} | median_interval(
        [run.step_us() for _ in range(steps)]
    )


def print_table(result: dict[str, object], steps: dict[int, dict[str, float]]) -> None:
    print(f"{'context':>8} {'us/step':>8} {'95 %':>14} {'mean':>7} {'max':>9}")
    for length, row in steps.items():
        interval = f"{row['low']:.1f}-{row['high']:.1f}"
        print(f"{length:8d} {row['median']:8.1f} {interval:>14} {row['mean']:7.1f} {row['max']:9.1f}")
    medians = [row["median"] for row in steps.values()]
    print(f"slowest / fastest context: {max(medians) / min(medians):.2f}")
    for key in ("index", "batch"):
        print(f"{key}: {result[key]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--min-n", type=int, default=1)
    parser.add_argument("--max-n", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20, help="steps per block")
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()
    sizes = (args.min_n, args.max_n)
    torch.set_num_threads(1)
    steps = measure_steps(sizes, args.blocks, args.steps)
    result: dict[str, object] = {
        "step_us_per_request": steps,
        "index": measure_index(sizes, repeats=9),
        "batch": measure_batch(sizes, args.batch_size, steps=30),
    }
    print_table(result, steps)
    settings = vars(args) | {"vocab_size": VOCAB_SIZE, "num_draft_tokens": NUM_DRAFT_TOKENS}
    print_json("ngram_propose", settings, result)


if __name__ == "__main__":
    main()
