"""A proposer in vLLM against the same vLLM without speculation: one request at a time, greedy.

Two engines, each in a process of its own, take turns prompt by prompt. Given per category are the median of
the paired ratios of tokens/s and its 95 % interval; prefill is part of the time.

    python benchmarks/vllm_speed.py --proposer early_exit
    python benchmarks/vllm_speed.py --proposer draft --draft-tokens 2 --eager
    python benchmarks/vllm_speed.py --proposer ngram --draft-tokens auto
    python benchmarks/vllm_speed.py --proposer early_exit --workload FILE.jsonl --categories writing,roleplay

The number of threads is that of OMP_NUM_THREADS. Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
from typing import Any

from drafting_options import add_drafting_options, drafting_values
from paired import interleaved, median_interval, median_ratio, print_json, shown
from prompts import chat_ids
from transformers import AutoTokenizer
from vllm_process import EngineSettings, VllmSide

from foredraft.integration.config import AUTO
from foredraft.integration.models.loading import model_folder


def main() -> None:
    options = _options()
    folder = model_folder(options.model)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sides = {
        "plain": VllmSide(_settings(options, str(folder), None)),
        options.proposer: VllmSide(_settings(options, str(folder), _foredraft(options))),
    }
    results: dict[str, Any] = {}
    for category in (options.categories or "all").split(","):
        chosen = None if category == "all" else [category]
        prompts = chat_ids(tokenizer, options.workload, chosen, options.prompts)
        results[category] = _measured(sides, prompts, options, category)
    counts = sides[options.proposer].close()
    sides["plain"].close()
    print(f"drafted {counts['drafted']}, accepted {counts['accepted']}, faults {counts['faults']}")
    print_json("vllm_speed", vars(options) | counts, results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_drafting_options(parser, ("early_exit", "draft", "ngram", AUTO))
    parser.add_argument(
        "--draft-tokens",
        type=lambda text: text if text == AUTO else int(text),
        help="per step, or auto; default what the draft or head says",
    )
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--eager", action="store_true", help="not vLLM's compiled mode")
    parser.add_argument("--workload", default="chat", help="a built-in workload or a JSONL file")
    parser.add_argument("--categories", help="comma list; default all")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--prompts", type=int, default=12, help="prompts of each category")
    parser.add_argument("--blocks", type=int, default=24, help="blocks of each category")
    parser.add_argument("--cpu-time", action="store_true", help="CPU time of the engine, not wall time")
    return parser.parse_args()


def _foredraft(options: argparse.Namespace) -> dict[str, Any]:
    values = drafting_values(options)
    del values["model"]
    return values | {"num_draft_tokens": options.draft_tokens}


def _settings(options: argparse.Namespace, model: str, foredraft: dict[str, Any] | None) -> EngineSettings:
    return EngineSettings(
        model=model,
        foredraft=foredraft,
        dtype=options.dtype,
        eager=options.eager,
        max_tokens=options.max_tokens,
        cpu_time=options.cpu_time,
        options={"max_model_len": options.max_model_len, "seed": 0, "enable_prefix_caching": False},
    )


def _measured(
    sides: dict[str, VllmSide], prompts: list[list[int]], options: argparse.Namespace, category: str
) -> dict[str, Any]:
    def run(side: VllmSide) -> Any:
        return lambda block: side.tokens_per_s(prompts[block % len(prompts)])

    runs = {name: run(side) for name, side in sides.items()}
    for one in runs.values():
        one(0)
    speeds = interleaved(runs, options.blocks)
    speedup = median_ratio(speeds[options.proposer], speeds["plain"])
    print(f"{category}: {options.proposer} / plain {shown(speedup)}")
    for name, values in speeds.items():
        print(f"    {name:10} {shown(median_interval(values))} tokens/s")
    return {"speedup": speedup, "tokens_per_s": speeds}


if __name__ == "__main__":
    main()
