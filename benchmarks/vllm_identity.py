"""Greedy output of vLLM with our proposers against stock vLLM without speculation: the same ids?

float32, prompts read in chunks, prefix caching on. Each prompt is served twice, so that the second time its
prefix comes from the cache.

    python benchmarks/vllm_identity.py --workload FILE.jsonl --batch 16
    python benchmarks/vllm_identity.py --proposers ngram,early_exit --prompts 20 --batch 1

Prints a line per proposer and one line of JSON last; exit code 1 if any output differs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from paired import print_json
from prompts import chat_ids
from vllm_side import MAX_LEN, vllm_engine

from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.vllm.engine import VllmEngine

CHUNK_TOKENS = 256
"""Per step; longer prompts are read in several."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--workload", default="chat", help="a built-in workload or a JSONL file")
    parser.add_argument("--proposers", default="ngram,draft,early_exit", help="comma list")
    parser.add_argument("--prompts", type=int, default=120, help="at most; those that fit")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--compiled", action="store_true", help="vLLM's default mode in place of eager")
    options = parser.parse_args()
    options.dtype = "float32"
    engine = build("none", options)
    fitting = MAX_LEN - options.max_tokens
    prompts = [ids for ids in chat_ids(engine.tokenizer, options.workload, None, None) if len(ids) <= fitting]
    prompts = prompts[:: max(len(prompts) // options.prompts, 1)][: options.prompts]  # of all categories
    expected = served(engine, prompts, options)
    num_equal = {}
    for name in options.proposers.split(","):
        engine = build(name, options)
        actual = served(engine, prompts, options)
        num_equal[name] = sum(one == other for one, other in zip(actual, expected, strict=True))
        drafted, accepted = engine.metrics.num_drafted_tokens, engine.metrics.num_accepted_tokens
        print(
            f"{name}: {num_equal[name]} of {len(expected)} equal, {accepted} of {drafted} accepted",
            flush=True,
        )
    print_json("vllm_identity", vars(options), {"outputs": len(expected), "equal": num_equal})
    sys.exit(any(number < len(expected) for number in num_equal.values()))


def build(proposer: str, options: argparse.Namespace) -> VllmEngine:
    caching = {"enable_prefix_caching": True, "max_num_batched_tokens": CHUNK_TOKENS}
    return vllm_engine(proposer, options.batch, options, caching)


def served(engine: VllmEngine, prompts: Sequence[list[int]], options: argparse.Namespace) -> list[list[int]]:
    """Output ids of the first and the second time."""
    params: Any = SamplingParams(temperature=0, max_tokens=options.max_tokens)
    outputs = [output for _ in range(2) for output in engine.generate(prompts, params)]
    engine.shutdown()
    return [output.outputs[0].token_ids for output in outputs]


if __name__ == "__main__":
    main()
