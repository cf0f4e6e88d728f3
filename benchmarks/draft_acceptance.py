"""How often the target accepts a draft's tokens, by place in the draft and by category.

Real engine, real prompts; a place counts only behind accepted ones. ``--temperature 0`` is greedy.

    python benchmarks/draft_acceptance.py --workload FILE.jsonl --categories writing,roleplay,qa
    python benchmarks/draft_acceptance.py --workload chat --draft DRAFT --temperature 1 --max-tokens 128
    python benchmarks/draft_acceptance.py --workload chat --proposer early_exit

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse

from drafting_options import add_drafting_options, drafting_values
from paired import print_json

from foredraft.integration.align.counts import AcceptanceCounts
from foredraft.integration.align.measure import AlignPrompt, measure_acceptance
from foredraft.integration.align.result import counts_json
from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.workloads import load_workload


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_drafting_options(parser)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--workload", default="chat", help="a built-in workload or a JSONL file")
    parser.add_argument("--categories", help="comma list; default all")
    parser.add_argument("--limit", type=int, help="prompts at most")
    parser.add_argument("--draft-tokens", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args()
    config = Config(
        **drafting_values(options),
        dtype=options.dtype,
        num_draft_tokens=options.draft_tokens,
        engine={"max_num_seqs": options.batch, "max_model_len": 4096},
    )
    target = load_target(config)
    categories = options.categories.split(",") if options.categories else None
    prompts = [
        AlignPrompt(
            prompt.category,
            chat_prompt_ids(target.tokenizer, [{"role": "user", "content": prompt.turns[0]}]),
        )
        for prompt in load_workload(options.workload, categories, options.limit)
    ]
    acceptance = measure_acceptance(
        build_engine(config, target),
        prompts,
        options.temperature,
        sampling=SamplingParams(max_tokens=options.max_tokens, seed=0),
        batch_size=options.batch,
    )
    groups = acceptance.categories | {"all": acceptance.overall}
    for name, counts in groups.items():
        print(line(name, counts))
    print_json(
        "draft_acceptance", vars(options), {name: counts_json(counts) for name, counts in groups.items()}
    )


def line(name: str, counts: AcceptanceCounts) -> str:
    if counts.first_interval is None or counts.acceptance_length is None:
        return f"{name}: no data"
    low, high = counts.first_interval
    places = [
        "-" if acceptance is None else f"{acceptance:.3f} of {judged}"
        for acceptance, judged in zip(counts.position_acceptance, counts.judged_per_position, strict=True)
    ]
    return (
        f"{name}: {', '.join(places)}; first [{low:.3f}, {high:.3f}]; "
        f"{counts.acceptance_length:.2f} tokens per pass"
    )


if __name__ == "__main__":
    main()
