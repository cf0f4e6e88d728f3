"""The block rule against the token rule: acceptance length at temperature 1, same prompts and seeds.

Acceptance length counts the recovered or bonus token, over steps that drafted. Prompts are served again with
other seeds until enough is drafted under both rules. The interval of the difference is a paired bootstrap
over requests (percentiles of 10 000 resamples): tokens of a request depend on each other, requests do not.

    python benchmarks/draft_rules.py --workload FILE.jsonl --draft-tokens 4
    python benchmarks/draft_rules.py --workload chat --draft DRAFT --drafted 20000

Prints both lengths and the difference, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
from numpy.typing import NDArray
from paired import print_json
from prompts import chat_ids

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams

RULES = ("block", "token")
RESAMPLES = 10_000

Counts = NDArray[np.int64]
"""[requests, 3]: drafts, drafted tokens, accepted tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", help="draft model; default the one that comes with the model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--workload", default="chat", help="a built-in workload or a JSONL file")
    parser.add_argument("--categories", help="comma list; default all")
    parser.add_argument("--prompts", type=int, help="prompts at most")
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--drafted", type=int, default=20_000, help="drafted tokens under each rule at least")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=1.0)
    options = parser.parse_args()
    target = load_target(Config(model=options.model, dtype=options.dtype))
    categories = options.categories.split(",") if options.categories else None
    prompts = chat_ids(target.tokenizer, options.workload, categories, options.prompts)
    engines = {
        rule: build_engine(
            Config(
                proposer="draft",
                num_draft_tokens=options.draft_tokens,
                verification_rule=rule,
                draft={"model": options.draft},
                engine={"max_num_seqs": options.batch, "max_model_len": 4096},
            ),
            target,
        )
        for rule in RULES
    }
    counts = serve(engines, prompts, options)
    print_json("draft_rules", vars(options), report(counts))


def serve(
    engines: dict[str, EmbeddedEngine], prompts: list[list[int]], options: argparse.Namespace
) -> dict[str, Counts]:
    """Counts of the same requests under both rules, batch after batch until enough is drafted."""
    rows: dict[str, list[list[int]]] = {rule: [] for rule in RULES}
    num_served = 0
    while min(sum(row[1] for row in each) for each in rows.values()) < options.drafted:
        numbers = range(num_served, num_served + 2 * options.batch)
        num_served += len(numbers)
        chosen = [prompts[number % len(prompts)] for number in numbers]
        params = [
            SamplingParams(temperature=options.temperature, max_tokens=options.max_tokens, seed=number)
            for number in numbers
        ]
        for rule, engine in engines.items():
            for output in engine.generate(chosen, params):
                stats = output.outputs[0].speculation
                rows[rule].append([stats.num_drafts, stats.num_drafted_tokens, stats.num_accepted_tokens])
        if not any(row[1] for row in rows["block"]):
            raise SystemExit("draft_rules: nothing is drafted on these prompts")
        print(f"\r{sum(row[1] for row in rows['block'])} drafted", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    return {rule: np.array(each) for rule, each in rows.items()}


def report(counts: dict[str, Counts]) -> dict[str, object]:
    lengths = {rule: acceptance_length(each) for rule, each in counts.items()}
    low, high = difference_interval(counts["block"], counts["token"])
    for rule in RULES:
        print(f"{rule}: acceptance length {lengths[rule]:.4f} over {counts[rule][:, 1].sum()} drafted tokens")
    difference = lengths["block"] - lengths["token"]
    print(f"block - token: {difference:+.4f} [{low:+.4f}, {high:+.4f}], {len(counts['block'])} requests")
    return {
        "acceptance_length": lengths,
        "drafted_tokens": {rule: int(each[:, 1].sum()) for rule, each in counts.items()},
        "requests": len(counts["block"]),
        "difference": {"block_minus_token": difference, "low": low, "high": high},
    }


def acceptance_length(counts: Counts) -> float:
    """1 + accepted / drafts."""
    drafts, _, accepted = counts.sum(0)
    return float(1 + accepted / drafts)


def difference_interval(block: Counts, token: Counts) -> tuple[float, float]:
    """95 % interval of the difference in acceptance length, resampling requests in pairs."""
    generator = np.random.default_rng(0)
    differences = []
    for _ in range(RESAMPLES):
        chosen = generator.integers(0, len(block), len(block))
        differences.append(acceptance_length(block[chosen]) - acceptance_length(token[chosen]))
    low, high = np.percentile(differences, [2.5, 97.5])
    return float(low), float(high)


if __name__ == "__main__":
    main()
