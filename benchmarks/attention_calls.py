"""Rows that share attention calls: a pass cut into the cheapest against one padded call and a call each.

Passes over rows of unlike contexts, with unlike drafts; the three ways take turns in blocks. Given are the
medians of the paired ratios of seconds and their 95 % intervals.

    python benchmarks/attention_calls.py

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import cycle, islice
from unittest.mock import patch

from paired import interleaved, median_interval, median_ratio, print_json, shown
from target_pass import fill, tokens_like

from foredraft.integration.config import Config
from foredraft.integration.embedded import attention
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.proposers import Decoder, Tokens

CONTEXTS = {"alike": (400, 410, 390), "unlike": (60, 700, 150, 300)}
DRAFTS = {"none": (0,), "4 each": (4,), "12 of one": (12, 0, 0, 0), "by turns": (0, 3, 8, 1)}
Cut = Callable[..., list[list[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch-sizes", default="4,16")
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    batches = [int(size) for size in options.batch_sizes.split(",")]
    sizes = {"max_num_seqs": max(batches), "max_model_len": 1024}
    config = Config(model=options.model, dtype=options.dtype, proposer="none", engine=sizes)
    decoder = build_engine(config, load_target(config)).decoder
    results = {}
    for batch in batches:
        for kind, some in CONTEXTS.items():
            contexts = list(islice(cycle(some), batch))
            for row, context in enumerate(contexts):
                decoder.truncate(row, 0)
                fill(decoder, context, row)
            for drafts, lengths in DRAFTS.items():
                counts = [1 + length for length in islice(cycle(lengths), batch)]
                title = f"batch {batch}, contexts {kind}, drafts {drafts}"
                results[title] = ratios(title, decoder, contexts, counts, options.blocks)
    print_json("attention_calls", vars(options), results)


def ratios(
    title: str, decoder: Decoder, contexts: list[int], counts: list[int], num_blocks: int
) -> dict[str, dict[str, float]]:
    """Seconds of the cheapest calls over those of the other ways."""
    ways: dict[str, Cut] = {
        "cheapest": attention.cheapest_groups,
        "one call": lambda slots, *_: [list(range(len(slots)))],
        "a call each": lambda slots, *_: [[row] for row in range(len(slots))],
    }
    sides = {name: one_pass(decoder, contexts, counts, way) for name, way in ways.items()}
    seconds = interleaved(sides, num_blocks)
    found = {name: median_ratio(seconds["cheapest"], seconds[name]) for name in list(ways)[1:]}
    milliseconds = median_interval(seconds["cheapest"])["median"] * 1e3
    shares = ", ".join(f"{shown(ratio)} of {name}" for name, ratio in found.items())
    print(f"{title}: {milliseconds:.1f} ms, {shares}", flush=True)
    return found


def one_pass(decoder: Decoder, contexts: list[int], counts: list[int], way: Cut) -> Callable[[int], float]:
    tokens = Tokens(tokens_like(decoder, sum(counts)), list(range(len(counts))), contexts, counts)

    def run(_block: int) -> float:
        with patch.object(attention, "cheapest_groups", way):
            began = time.perf_counter()
            decoder.head(decoder.forward(tokens)).argmax(-1).tolist()
            spent = time.perf_counter() - began
        for row, context in enumerate(contexts):
            decoder.truncate(row, context)
        return spent

    return run


if __name__ == "__main__":
    main()
