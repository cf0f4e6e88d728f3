"""``proposer: ngram`` against ``none`` and against transformers' prompt lookup, batch 1, greedy.

A block is one prompt, run by every side; prefill is part of the time. Given per group of categories are the
medians of the paired ratios of tokens/s and their 95 % intervals.

    python benchmarks/ngram_speed.py --workload copy_heavy --max-tokens 192
    python benchmarks/ngram_speed.py --workload FILE.jsonl --categories summarization,rag
    python benchmarks/ngram_speed.py --workload FILE.jsonl --categories writing,roleplay --no-transformers

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from paired import interleaved, median_interval, median_ratio, print_json, shown
from prompts import chat_ids
from transformers_side import TransformersSide

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--workload", default="copy_heavy", help="a built-in workload or a JSONL file")
    parser.add_argument("--categories", help="comma list; default all")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=12, help="prompts of each category")
    parser.add_argument("--blocks", type=int, default=24, help="blocks of each category")
    parser.add_argument(
        "--lookup-tokens", type=int, default=10, help="transformers' prompt_lookup_num_tokens"
    )
    parser.add_argument("--no-transformers", action="store_true")
    options = parser.parse_args()
    config = Config(model=options.model, engine={"max_num_seqs": 1})
    target = load_target(config)
    lookup = None
    if not options.no_transformers:
        lookup = TransformersSide(
            options.model, torch.bfloat16, target.device, prompt_lookup_num_tokens=options.lookup_tokens
        )
    results = {}
    for category in (options.categories or "all").split(","):
        chosen = None if category == "all" else [category]
        prompts = chat_ids(target.tokenizer, options.workload, chosen, options.prompts)
        sides = {name: ours(name, target, prompts, options.max_tokens) for name in ("none", "ngram")}
        if lookup is not None:
            sides["lookup"] = lambda block, prompts=prompts: lookup.tokens_per_s(
                [prompts[block % len(prompts)]], options.max_tokens
            )
        for side in sides.values():
            side(0)
        speeds = interleaved(sides, options.blocks)
        results[category] = {"speedup": median_ratio(speeds["ngram"], speeds["none"]), "tokens_per_s": speeds}
        print(f"{category}: ngram / none {shown(results[category]['speedup'])}")
        if lookup is not None:
            results[category]["against_lookup"] = median_ratio(speeds["ngram"], speeds["lookup"])
            print(
                f"{category}: ngram / transformers prompt lookup {shown(results[category]['against_lookup'])}"
            )
        for name, values in speeds.items():
            print(f"    {name:8} {shown(median_interval(values))} tokens/s")
    print_json("ngram_speed", vars(options), results)


def ours(proposer: str, target: Target, prompts: list[list[int]], max_tokens: int) -> Callable[[int], float]:
    engine = build_engine(Config(proposer=proposer, engine={"max_num_seqs": 1}), target)
    params = SamplingParams(temperature=0, max_tokens=max_tokens)

    def tokens_per_s(block: int) -> float:
        began = time.perf_counter()
        output = engine.generate([prompts[block % len(prompts)]], params)[0]
        return len(output.outputs[0].token_ids) / (time.perf_counter() - began)

    return tokens_per_s


if __name__ == "__main__":
    main()
