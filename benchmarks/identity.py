"""Is the output with a proposer token-identical to plain decoding? float32, the prompts of a JSONL file.

``none`` runs once, at the first batch size; the proposer at every batch size is held against it, so that
batch sizes are held against each other as well. With ``--temperature`` above 0 every request gets its own
seed; equal tokens are then promised for ``ngram`` only.

    python benchmarks/identity.py --workload FILE.jsonl
    python benchmarks/identity.py --workload FILE.jsonl --limit 60 --temperature 1 --top-p 0.9
    python benchmarks/identity.py --workload FILE.jsonl --proposer draft --draft-tokens 1,3

Prints each difference, and one line of JSON last. Exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
import time

from drafting_options import DRAFTING_PROPOSERS, add_drafting_options, drafting_values
from paired import print_json
from prompts import chat_ids

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", required=True)
    add_drafting_options(parser, ("ngram", *DRAFTING_PROPOSERS))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--batch-sizes", default="8,1")
    parser.add_argument("--draft-tokens", default="8")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    options = parser.parse_args()
    target = load_target(Config(model=options.model, dtype=options.dtype))
    prompts = chat_ids(target.tokenizer, options.workload, None, options.limit)
    if options.limit is not None:
        prompts = prompts[: options.limit]
    params = [
        SamplingParams(
            temperature=options.temperature, top_p=options.top_p, max_tokens=options.max_tokens, seed=index
        )
        for index in range(len(prompts))
    ]
    batch_sizes = [int(size) for size in options.batch_sizes.split(",")]
    plain = run(target, prompts, params, Config(proposer="none"), batch_sizes[0])
    results = []
    for num_draft_tokens in map(int, options.draft_tokens.split(",")):
        for batch_size in batch_sizes:
            config = Config(**drafting_values(options), num_draft_tokens=num_draft_tokens)
            tokens = run(target, prompts, params, config, batch_size)
            equal = sum(ours == theirs for ours, theirs in zip(tokens, plain, strict=True))
            results.append(
                {
                    "batch_size": batch_size,
                    "num_draft_tokens": num_draft_tokens,
                    "equal": equal,
                    "of": len(prompts),
                }
            )
            print(
                f"{options.proposer}, batch {batch_size}, K {num_draft_tokens}: "
                f"{equal} of {len(prompts)} equal to none"
            )
    print_json("identity", vars(options), results)
    sys.exit(any(result["equal"] != result["of"] for result in results))


def run(
    target: Target,
    prompts: list[list[int]],
    params: list[SamplingParams],
    config: Config,
    batch_size: int,
) -> list[list[int]]:
    """Output tokens under ``config`` at a batch size."""
    sizes = {"max_num_seqs": batch_size, "max_model_len": 4096}
    engine = build_engine(Config(**(config.model_dump() | {"engine": sizes})), target)
    began = time.perf_counter()
    outputs = engine.generate(prompts, params)
    print(f"{config.proposer}, batch {batch_size}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return [output.outputs[0].token_ids for output in outputs]


if __name__ == "__main__":
    main()
