"""``ngram`` by our plugin against vLLM's own ``ngram`` and against a stock vLLM, greedy, tokens/s.

The same K, min_n and max_n for both, and no limit by the length of a match, which vLLM does not have. A block
is one batch of prompts, served by every side. Given per workload and batch size are the medians of the paired
ratios and their 95 % intervals.

    VLLM_CPU_KVCACHE_SPACE=1 python benchmarks/vllm_ngram.py
    VLLM_CPU_KVCACHE_SPACE=1 python benchmarks/vllm_ngram.py --compiled --dtype bfloat16 --growth 2

Prints a table, and one line of JSON last. Needs vLLM.
"""

from __future__ import annotations

import argparse

from paired import interleaved, median_interval, median_ratio, print_json, shown
from prompts import chat_ids
from vllm_side import tokens_per_s, vllm_engine

NAMES = ("none", "ngram", "vllm:ngram")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--compiled", action="store_true", help="as vLLM runs by default; else eager")
    parser.add_argument("--workloads", default="copy_heavy,summarize_quotes")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--draft-tokens", type=int, default=8)
    parser.add_argument("--min-n", type=int, default=2)
    parser.add_argument("--max-n", type=int, default=5)
    parser.add_argument("--growth", type=int, default=0, help="our limit by the length of a match; 0 = none")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=24)
    options = parser.parse_args()
    results = {}
    for batch in map(int, options.batches.split(",")):
        ngram = {"min_n": options.min_n, "max_n": options.max_n, "draft_growth": options.growth}
        values = {"num_draft_tokens": options.draft_tokens, "ngram": ngram}
        engines = {name: vllm_engine(name, batch, options, **values) for name in NAMES}
        for workload in options.workloads.split(","):
            prompts = chat_ids(engines["none"].tokenizer, workload, None, None)
            sides = {
                name: tokens_per_s(engine, prompts, batch, options.max_tokens)
                for name, engine in engines.items()
            }
            for side in sides.values():
                side(0)
            speeds = interleaved(sides, options.blocks)
            where = f"{workload}, batch {batch}"
            results[where] = {
                "against_vllm_ngram": median_ratio(speeds["ngram"], speeds["vllm:ngram"]),
                "against_none": median_ratio(speeds["ngram"], speeds["none"]),
                "tokens_per_s": {name: median_interval(each) for name, each in speeds.items()},
            }
            print(f"{where}: ngram / vLLM's ngram {shown(results[where]['against_vllm_ngram'])}")
            print(f"{where}: ngram / none {shown(results[where]['against_none'])}")
        for engine in engines.values():
            engine.shutdown()
    print_json("vllm_ngram", vars(options), results)


if __name__ == "__main__":
    main()
