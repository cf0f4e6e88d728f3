"""Lengths and proposers chosen step by step, against none, against fixed lengths, and against one proposer.

    python benchmarks/auto_length.py                                  # all three parts
    python benchmarks/auto_length.py --parts floor --batch-sizes 1 --workloads writing --blocks 12
    python benchmarks/auto_length.py --engine vllm --parts floor --batch-sizes 1,8

- floor: {ngram, draft, early_exit, auto} with ``num_draft_tokens: auto`` against none, for each workload
  (writing at temperature 1, random tokens, copying) and batch size; the worst ratio is the figure.
- fixed: the same against fixed lengths of the same proposer; the ratio is to the best of these, by workload.
- mixed: ``proposer: auto`` against each proposer alone, all with open lengths, over chat, copying and code
  edits in turn.

Every side has an engine that stays, with what it has learned, and serves the same requests in the same
order, so many of them in flight at any time as the batch size says: who ends makes room for the next. A block
is ``--max-tokens`` tokens for each of them (in the mixed part for whole turns of the three kinds), reading
prompts included. The sides take turns in slices of it, a fraction of a second each: the speed of a machine
changes from second to second, and this way it does for all sides alike. With ``--drain`` a block is so many
prompts instead, served to their end: the batch empties, and what drafts win for one request then shortens no
step, as nobody takes its place.

Given are the medians of the paired ratios of tokens/s and their 95 % intervals. Prints a table per part, and
one line of JSON last. ``none again`` is ``none`` once more: how far its ratio is from 1 tells what the others
are worth.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from paired import interleaved, median_interval, median_ratio, print_json, shown
from prompts import chat_ids

from foredraft.integration.config import AUTO, Config
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.engine import Engine
from foredraft.integration.sampling_params import SamplingParams

PROPOSERS = ("ngram", "draft", "early_exit", AUTO)
FIXED = {"ngram": (2, 4, 8, 16), "draft": (1, 2, 3, 4), "early_exit": (1, 2, 3, 4)}
MIXED, AGAIN = "mixed", "none again"
RANDOM_PROMPT_TOKENS = 96
SLICES = 8
"""Turns in which each side serves a block."""


@dataclass(frozen=True)
class Workload:
    """Prompts as token ids, and the temperature they are answered at.

    Attributes:
        turn: a block has a multiple of so many prompts.
    """

    prompts: Sequence[Sequence[int]]
    temperature: float
    turn: int = 1

    def prompt(self, place: int) -> Sequence[int]:
        """One after the other, over and over."""
        return self.prompts[place % len(self.prompts)]

    def params(self, max_tokens: int, seed: int) -> SamplingParams:
        """How it is answered."""
        return SamplingParams(temperature=self.temperature, max_tokens=max_tokens, ignore_eos=True, seed=seed)

    def block_size(self, batch: int) -> int:
        """Prompts of a block: whole turns that fill the batch."""
        return -(-batch // self.turn) * self.turn


def main() -> None:
    options = parsed()
    target = load_target(Config(dtype=options.dtype))
    workloads = {name: load(name, target) for name in options.workloads.split(",")}
    results: dict[str, Any] = {}
    for part in options.parts.split(","):
        used = {MIXED: load(MIXED, target)} if part == "mixed" else workloads
        for name, workload in used.items():
            for batch in map(int, options.batch_sizes.split(",")):
                title = f"{part}, {name}, batch {batch}"
                results[title] = PARTS[part](title, target, workload, batch, options)
    floors = [
        ratio["median"]
        for title, one in results.items()
        if title.startswith("floor")
        for name, ratio in one.items()
        if name != AGAIN
    ]
    if floors:
        print(f"worst against none: {min(floors):.3f}")
    print_json("auto_length", vars(options), results)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="floor,fixed,mixed", help="comma list")
    parser.add_argument("--workloads", default="writing,random,copy", help="comma list, of floor and fixed")
    parser.add_argument("--batch-sizes", default="1,4,16", help="comma list")
    parser.add_argument("--proposers", default=",".join(PROPOSERS), help="comma list")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--engine", default="embedded", choices=("embedded", "vllm"))
    parser.add_argument("--compiled", action="store_true", help="vLLM: not eager")
    parser.add_argument("--drain", action="store_true", help="serve each block to its end")
    parser.set_defaults(model=Config().model, dtype="bfloat16")
    return parser.parse_args()


def load(name: str, target: Target) -> Workload:
    """A workload by name."""
    if name == "random":
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, target.vocab_size, (64, RANDOM_PROMPT_TOKENS), generator=generator)
        return Workload(tokens.tolist(), 1.0)
    if name == "writing":
        return Workload(chat_ids(target.tokenizer, "chat", ["writing"], None), 1.0)
    if name == "copy":
        return Workload(chat_ids(target.tokenizer, "copy_heavy", None, None), 0.0)
    kinds = [chat_ids(target.tokenizer, kind, None, None) for kind in ("chat", "copy_heavy", "code_edit")]
    return Workload([prompt for prompts in zip(*kinds, strict=False) for prompt in prompts], 0.0, len(kinds))


def floor(
    title: str, target: Target, workload: Workload, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Open lengths against none."""
    names = options.proposers.split(",")
    sides = {name: {"proposer": "none"} for name in ("none", AGAIN)}
    sides |= {name: {"proposer": name, "num_draft_tokens": AUTO} for name in names}
    speeds = measured(sides, target, workload, batch, options)
    ratios = {name: median_ratio(speeds[name], speeds["none"]) for name in (AGAIN, *names)}
    show(title, speeds, {f"{name} / none": ratio for name, ratio in ratios.items()})
    return ratios


def fixed(
    title: str, target: Target, workload: Workload, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Open lengths against the best fixed one of the same proposer: the one with the highest median."""
    results = {}
    for name in options.proposers.split(","):
        if name not in FIXED:
            continue
        lengths: Sequence[int | str] = (AUTO, *FIXED[name])
        sides = {f"{name} {length}": {"proposer": name, "num_draft_tokens": length} for length in lengths}
        speeds = measured(sides, target, workload, batch, options)
        best = max(list(sides)[1:], key=lambda side: median_interval(speeds[side])["median"])
        results[name] = {"best": best, **median_ratio(speeds[f"{name} {AUTO}"], speeds[best])}
        show(title, speeds, {f"{name} {AUTO} / {best}": results[name]})
    return results


def mixed(
    title: str, target: Target, workload: Workload, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """All proposers together against the best of them alone."""
    names = [name for name in options.proposers.split(",") if name != AUTO]
    sides = {name: {"proposer": name, "num_draft_tokens": AUTO} for name in (AUTO, *names)}
    speeds = measured(sides, target, workload, batch, options)
    best = max(names, key=lambda side: median_interval(speeds[side])["median"])
    ratio = {"best": best, **median_ratio(speeds[AUTO], speeds[best])}
    show(title, speeds, {f"{AUTO} / {best}": ratio})
    return ratio


PARTS = {"floor": floor, "fixed": fixed, "mixed": mixed}


def measured(
    sides: Mapping[str, Mapping[str, Any]],
    target: Target,
    workload: Workload,
    batch: int,
    options: argparse.Namespace,
) -> dict[str, list[float]]:
    """Tokens/s of every side, block by block."""
    serve, slices = (drained, 1) if options.drain else (kept_full, SLICES)
    built = {
        name: serve(engine_for(values, target, workload, batch, options), workload, batch, options.max_tokens)
        for name, values in sides.items()
    }
    for one in built.values():
        for _ in range(slices):
            one()
    seconds = interleaved({name: numbered(one) for name, one in built.items()}, options.blocks * slices)
    num_tokens = workload.block_size(batch) * options.max_tokens
    return {
        name: [num_tokens / sum(one[first : first + slices]) for first in range(0, len(one), slices)]
        for name, one in seconds.items()
    }


def numbered(serve: Callable[[], float]) -> Callable[[int], float]:
    """What is served next hangs on what was served, not on the number of the block."""
    return lambda block: serve()


def engine_for(
    values: Mapping[str, Any], target: Target, workload: Workload, batch: int, options: argparse.Namespace
) -> Engine:
    """The engine of a side."""
    longest = min(max(map(len, workload.prompts)) + options.max_tokens, target.max_len)
    if options.engine == "vllm":
        from vllm_side import vllm_engine

        return vllm_engine(**values, batch=batch, options=options, given={"max_model_len": longest})
    sizes = {"max_num_seqs": batch, "max_model_len": longest}
    return build_engine(Config(**values, engine=sizes), target)


def kept_full(engine: Engine, workload: Workload, batch: int, max_tokens: int) -> Callable[[], float]:
    """Seconds of the next slice of an endless queue; it ends at the same number of tokens for every side."""
    slice_tokens = workload.block_size(batch) * max_tokens / SLICES
    num_added = num_slices = 0

    def add() -> None:
        nonlocal num_added
        # The first ones end one after the other: from then on requests come and go singly.
        length = -(-max_tokens * (num_added + 1) // batch) if num_added < batch else max_tokens
        engine.add_request(str(num_added), workload.prompt(num_added), workload.params(length, num_added))
        num_added += 1

    def seconds() -> float:
        nonlocal num_slices
        num_slices += 1
        began = time.perf_counter()
        while engine.metrics.num_emitted_tokens < num_slices * slice_tokens:
            for output in engine.step():
                if output.finished:
                    add()
        return time.perf_counter() - began

    for _ in range(batch):
        add()
    return seconds


def drained(engine: Engine, workload: Workload, batch: int, max_tokens: int) -> Callable[[], float]:
    """Seconds of the next block of prompts, served to its end."""
    size = workload.block_size(batch)
    num_blocks = 0

    def seconds() -> float:
        nonlocal num_blocks
        chosen = [workload.prompt(num_blocks * size + place) for place in range(size)]
        began = time.perf_counter()
        engine.generate(chosen, workload.params(max_tokens, num_blocks))
        num_blocks += 1
        return time.perf_counter() - began

    return seconds


def show(title: str, speeds: Mapping[str, Sequence[float]], ratios: Mapping[str, Mapping[str, Any]]) -> None:
    """Speeds and ratios as lines."""
    for name, values in speeds.items():
        print(f"{title}: {name:16} {shown(median_interval(values))} tokens/s")
    for name, ratio in ratios.items():
        print(f"{title}: {name:32} {shown(ratio)}", flush=True)


if __name__ == "__main__":
    main()
