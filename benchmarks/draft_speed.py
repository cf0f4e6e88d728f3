"""``draft`` or ``early_exit`` against ``none``, greedy, per category of a workload and per K.

A block is one prompt (``--batch`` prompts), run by every side; prefill is part of the time. Given are the
medians of the paired ratios of tokens/s and their 95 % intervals.

    python benchmarks/draft_speed.py --workload FILE.jsonl --categories writing,roleplay,stem,humanities,qa
    python benchmarks/draft_speed.py --workload chat --draft DRAFT --draft-tokens 1,2 --batch 8
    python benchmarks/draft_speed.py --workload chat --proposer early_exit --transformers
    python benchmarks/draft_speed.py --workload chat --draft PLAIN_DRAFT --transformers
    python benchmarks/draft_speed.py --workload chat --transformers --assistant PLAIN_DRAFT

``--transformers`` adds transformers' assisted ``generate``, for each K with constant drafts of K tokens, and
once with transformers' own settings. With ``early_exit`` that is ``assistant_early_exit`` at the same layer
(it knows the model's own norm and head only). With ``draft`` it is ``assistant_model``, the same draft as a
Llama model of the draft's layers and the target's embedding and whole head. A draft that reads the target's
hidden states cannot run there; name one of the plain form with ``--assistant`` to be compared with instead.

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from assisted_generation import Side, assisted_generation
from drafting_options import add_drafting_options, drafting_values
from paired import interleaved, median_interval, median_ratio, print_json, shown
from prompts import chat_ids

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_drafting_options(parser)
    parser.add_argument("--workload", default="chat", help="a built-in workload or a JSONL file")
    parser.add_argument("--categories", help="comma list; default all together")
    parser.add_argument("--draft-tokens", default="1,2,3", help="comma list")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--prompts", type=int, default=20, help="prompts of each category at most")
    parser.add_argument("--blocks", type=int, default=20, help="blocks of each category")
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--assistant", help="draft of the plain form for transformers; default --draft")
    options = parser.parse_args()
    if options.transformers and options.batch != 1:
        parser.error("--transformers: assisted generation serves one prompt at a time")
    lengths = [int(length) for length in options.draft_tokens.split(",")]
    target = load_target(Config(model=options.model, dtype="bfloat16"))
    assisted = assisted_generation(options, target) if options.transformers else None
    results = {}
    for category in (options.categories or "all").split(","):
        chosen = None if category == "all" else [category]
        prompts = chat_ids(target.tokenizer, options.workload, chosen, options.prompts)
        sides = {"none": ours(target, options, prompts, None)}
        sides |= {
            f"{options.proposer} {length}": ours(target, options, prompts, length) for length in lengths
        }
        if assisted is not None:
            sides |= assisted.sides(prompts, options.max_tokens, lengths)
        for side in sides.values():
            side(0)
        results[category] = report(category, options.proposer, interleaved(sides, options.blocks))
    print_json("draft_speed", vars(options), results)


def report(category: str, proposer: str, speeds: dict[str, list[float]]) -> dict[str, Any]:
    """Print and return the ratios of one category: all to ``none``, ours to the best of transformers."""
    ratios = {name: median_ratio(values, speeds["none"]) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(
            f"{category}: {name:20} / none {shown(ratios[name])}   {shown(median_interval(values))} tokens/s"
        )
    result: dict[str, Any] = {"speedup": ratios, "tokens_per_s": speeds}
    best = {
        group: max(
            (name for name in speeds if name.startswith(group)), key=lambda name: ratios[name]["median"]
        )
        for group in (proposer, "assistant")
        if any(name.startswith(group) for name in speeds)
    }
    if "assistant" in best:
        result["against_assistant"] = median_ratio(speeds[best[proposer]], speeds[best["assistant"]])
        print(f"{category}: {best[proposer]} / {best['assistant']} {shown(result['against_assistant'])}")
    return result


def ours(
    target: Target, options: argparse.Namespace, prompts: list[list[int]], num_draft_tokens: int | None
) -> Side:
    """Tokens/s of a block with so many drafted tokens; ``None`` = plain decoding."""
    longest = max(map(len, prompts)) + options.max_tokens
    drafting = {} if num_draft_tokens is None else drafting_values(options)
    config = Config(
        **({"proposer": "none"} | drafting),
        num_draft_tokens=num_draft_tokens,
        engine={"max_num_seqs": options.batch, "max_model_len": min(longest, target.max_len)},
    )
    engine = build_engine(config, target)
    params = SamplingParams(temperature=0, max_tokens=options.max_tokens)

    def tokens_per_s(block: int) -> float:
        first = block * options.batch
        chosen = [prompts[(first + number) % len(prompts)] for number in range(options.batch)]
        began = time.perf_counter()
        outputs = engine.generate(chosen, params)
        seconds = time.perf_counter() - began
        return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds

    return tokens_per_s


if __name__ == "__main__":
    main()
