"""Plain decoding on the embedded engine against transformers' ``generate``, greedy, prefill included.

Each block takes ``batch`` prompts of unequal lengths and runs them on both; transformers runs in float32 and
in bfloat16, and its better dtype counts. Given are the medians of the paired ratios of tokens/s and their
95 % intervals.

    python benchmarks/plain_speed.py --batch 1
    python benchmarks/plain_speed.py --batch 8

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from paired import interleaved, median_interval, median_ratio, print_json, shown
from prompts import chat_ids
from transformers_side import TransformersSide

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--workload", default="chat")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    config = Config(model=options.model, proposer="none", engine={"max_num_seqs": options.batch})
    target = load_target(config)
    engine = build_engine(config, target)
    prompts = chat_ids(target.tokenizer, options.workload, None, None)
    params = SamplingParams(temperature=0, max_tokens=options.max_tokens)

    def batch(block: int) -> list[list[int]]:
        return [prompts[(block * options.batch + row) % len(prompts)] for row in range(options.batch)]

    def ours(block: int) -> float:
        began = time.perf_counter()
        outputs = engine.generate(batch(block), params)
        seconds = time.perf_counter() - began
        return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds

    sides = {"foredraft": ours}
    for dtype in (torch.float32, torch.bfloat16):
        other = TransformersSide(options.model, dtype, target.device)
        sides[str(dtype)] = lambda block, other=other: other.tokens_per_s(batch(block), options.max_tokens)
    for side in sides.values():
        side(0)
    speeds = interleaved(sides, options.blocks)
    better = max(("torch.float32", "torch.bfloat16"), key=lambda name: statistics.median(speeds[name]))
    ratio = median_ratio(speeds["foredraft"], speeds[better])
    for name, values in speeds.items():
        print(f"{name:16} {shown(median_interval(values))} tokens/s")
    print(f"foredraft ({target.dtype}) / transformers ({better}), batch {options.batch}: {shown(ratio)}")
    print_json("plain_speed", vars(options), {"ratio": ratio, "better_dtype": better, "tokens_per_s": speeds})


if __name__ == "__main__":
    main()
