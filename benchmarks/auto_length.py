"""``num_draft_tokens: auto`` against none and fixed lengths, through the embedded engine, paired by blocks.

    python benchmarks/auto_length.py --workload copy_heavy,chat --batch-sizes 1,8

Ratios of tokens/s to plain decoding, medians over the blocks; the lengths that were chosen; the proposers
take turns block by block.
"""

from __future__ import annotations

import argparse

from paired import median_interval, print_json, shown

from foredraft.integration.compare.plan import ComparePlan, parse_batch_sizes, replaced
from foredraft.integration.compare.prompts import encode_prompts, load_workloads
from foredraft.integration.compare.session import run_comparison
from foredraft.integration.config import AUTO, Config
from foredraft.integration.embedded.build import load_target


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default="copy_heavy,chat", help="comma list of names or JSONL files")
    parser.add_argument("--batch-sizes", default="1,8")
    parser.add_argument("--proposer", default="ngram")
    parser.add_argument("--draft-model", help="of the proposer draft")
    parser.add_argument("--lengths", default="auto,8", help="comma list of auto and numbers")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--limit", type=int, default=8, help="prompts per workload")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--explain", action="store_true")
    options = parser.parse_args()
    base = Config(
        proposer="none",
        draft={"model": options.draft_model},
        sampling={"temperature": options.temperature, "max_tokens": options.max_tokens},
    )
    configs = {"none": base}
    for length in options.lengths.split(","):
        number = AUTO if length == AUTO else int(length)
        configs[f"{options.proposer} {length}"] = replaced(
            base, proposer=options.proposer, num_draft_tokens=number
        )
    plan = ComparePlan(
        configs,
        tuple(options.workload.split(",")),
        parse_batch_sizes(options.batch_sizes),
        (options.temperature,),
        options.limit,
        options.repeats,
    )
    target = load_target(base)
    prompts = {
        name: encode_prompts(each, target.tokenizer, target.max_len)
        for name, each in load_workloads(plan).items()
    }
    ratios: dict[tuple[str, int, str], list[float]] = {}
    tokens: dict[tuple[str, int, str], list[float]] = {}
    for block in run_comparison(plan, target, prompts, explain=options.explain):
        for name, run in block.runs.items():
            key = (block.cell.workload, block.cell.batch_size, name)
            ratios.setdefault(key, []).append(run.tokens_per_s / block.runs["none"].tokens_per_s)
            tokens.setdefault(key, []).append(run.tokens_per_s)
    for (workload, batch_size, name), values in ratios.items():
        rate = median_interval(tokens[workload, batch_size, name])["median"]
        ratio = shown(median_interval(values))
        print(f"{workload:16} batch {batch_size:3}  {name:12} {rate:8.1f} tokens/s, ratio {ratio}")
    print_json(
        "auto_length",
        vars(options),
        {" ".join(map(str, key)): median_interval(values) for key, values in ratios.items()},
    )


if __name__ == "__main__":
    main()
