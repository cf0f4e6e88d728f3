"""Our own bookkeeping: the share of a step that is neither the forward pass nor turning logits into tokens.

Greedy, batch 8, ``none`` and ``ngram``; drafting counts as bookkeeping here. A block is one batch of requests
from first to last step. Given are medians over blocks and their 95 % intervals.

    python benchmarks/bookkeeping.py

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from paired import interleaved, median_interval, print_json, shown
from prompts import chat_ids

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    config = Config(model=options.model, engine={"max_num_seqs": options.batch})
    target = load_target(config)
    prompts = chat_ids(target.tokenizer, "chat", None, options.batch)
    params = SamplingParams(temperature=0, max_tokens=options.max_tokens)

    def share(engine: EmbeddedEngine) -> Callable[[int], float]:
        def run(_block: int) -> float:
            before = dict(engine.metrics.seconds)
            engine.generate(prompts, params)
            spent = {phase: seconds - before[phase] for phase, seconds in engine.metrics.seconds.items()}
            return 1 - (spent["forward"] + spent["sample"]) / spent["total"]

        return run

    engines = {
        name: build_engine(config.model_copy(update={"proposer": name}), target) for name in ("none", "ngram")
    }
    shares = interleaved({name: share(engine) for name, engine in engines.items()}, options.blocks)
    results = {name: median_interval(values) for name, values in shares.items()}
    for name, interval in results.items():
        print(f"{name:6} bookkeeping share of a step: {shown(interval)}")
    print_json("bookkeeping", vars(options), results)


if __name__ == "__main__":
    main()
