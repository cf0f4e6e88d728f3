"""Do evaluation prompts occur in a draft's training text? Counts shared runs of words.

    python benchmarks/training_overlap.py --training DIR --prompts FILE.jsonl

DIR is the folder of a ``foredraft train draft`` run. Words are compared in lower case, without punctuation.
A run of 8 words is seldom shared by chance; a prompt that was trained on would share nearly all of its runs.

Prints the longest runs in common, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import load_target
from foredraft.integration.train.data import GIVEN, WRITTEN
from foredraft.integration.train.samples import read_samples
from foredraft.integration.workloads import load_workload

SHOWN = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--training", type=Path, required=True)
    parser.add_argument("--prompts", required=True, help="a built-in workload or a JSONL file")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--words", type=int, default=8, help="length of a run")
    options = parser.parse_args()
    tokenizer = load_target(Config(model=options.model)).tokenizer
    samples = [s for name in (WRITTEN, GIVEN) for s in read_samples(options.training / name)]
    trained = {
        run
        for sample in samples
        for run in runs(words(tokenizer.decode(sample.token_ids, skip_special_tokens=True)), options.words)
    }
    prompts = load_workload(options.prompts)
    shares = []
    for prompt in prompts:
        own = list(runs(words(" ".join(prompt.turns)), options.words))
        shared = [run for run in own if run in trained]
        shares.append((len(shared) / max(1, len(own)), prompt.id, [" ".join(run) for run in shared[:2]]))
    shares.sort(reverse=True)
    num_touched = sum(share > 0 for share, _, _ in shares)
    print(
        f"{num_touched} of {len(prompts)} prompts share a run of {options.words} words with the training text"
    )
    for share, prompt_id, examples in shares[:SHOWN]:
        print(f"  prompt {prompt_id}: {share:.1%} of its runs {examples}")
    result = {
        "training_samples": len(samples),
        "prompts": len(prompts),
        "prompts_touched": num_touched,
        "largest_share": shares[0][0],
    }
    print(json.dumps({"benchmark": "training_overlap", "words": options.words, "results": result}))


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def runs(text: list[str], length: int) -> Iterable[tuple[str, ...]]:
    return (tuple(text[place : place + length]) for place in range(len(text) - length + 1))


if __name__ == "__main__":
    main()
