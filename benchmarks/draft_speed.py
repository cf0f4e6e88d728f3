"""``proposer: draft`` against ``none``, greedy, per category of a workload and per number of drafted tokens.

A block is one prompt (``--batch`` prompts), run by every side; prefill is part of the time. Given are the
medians of the paired ratios of tokens/s and their 95 % intervals.

    python benchmarks/draft_speed.py --workload FILE.jsonl --categories writing,roleplay,stem,humanities,qa
    python benchmarks/draft_speed.py --workload chat --draft DRAFT --draft-tokens 1,2 --batch 8
    python benchmarks/draft_speed.py --workload chat --draft PLAIN_DRAFT --transformers
    python benchmarks/draft_speed.py --workload chat --transformers --assistant PLAIN_DRAFT

``--transformers`` adds transformers' ``generate(assistant_model=...)`` with the same draft, as a Llama model
made of the draft's layers and the target's embedding and whole head; for each K with constant drafts of K
tokens, and once with transformers' own settings. A draft that reads the target's hidden states cannot run
there; name one of the plain form with ``--assistant`` to be compared with instead.

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from paired import interleaved, median_interval, median_ratio, print_json, shown
from prompts import chat_ids
from transformers import AutoConfig, AutoModelForCausalLM
from transformers_side import TransformersSide

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, DraftFile, read_draft_file
from foredraft.integration.models.loading import load_model
from foredraft.integration.models.pretrained import pretrained
from foredraft.integration.sampling_params import SamplingParams

Side = Callable[[int], float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", help="draft model; default the one that comes with the model")
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
    assisted = Assisted(options, target) if options.transformers else None
    results = {}
    for category in (options.categories or "all").split(","):
        chosen = None if category == "all" else [category]
        prompts = chat_ids(target.tokenizer, options.workload, chosen, options.prompts)
        sides = {"none": ours(target, options, prompts, None)}
        sides |= {f"draft {length}": ours(target, options, prompts, length) for length in lengths}
        if assisted is not None:
            sides |= assisted.sides(prompts, options.max_tokens, lengths)
        for side in sides.values():
            side(0)
        results[category] = report(category, interleaved(sides, options.blocks))
    print_json("draft_speed", vars(options), results)


def report(category: str, speeds: dict[str, list[float]]) -> dict[str, Any]:
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
        for group in ("draft", "assistant")
        if any(name.startswith(group) for name in speeds)
    }
    if "assistant" in best:
        result["against_assistant"] = median_ratio(speeds[best["draft"]], speeds[best["assistant"]])
        print(f"{category}: {best['draft']} / {best['assistant']} {shown(result['against_assistant'])}")
    return result


def ours(
    target: Target, options: argparse.Namespace, prompts: list[list[int]], num_draft_tokens: int | None
) -> Side:
    """Tokens/s of a block with so many drafted tokens; ``None`` = plain decoding."""
    longest = max(map(len, prompts)) + options.max_tokens
    config = Config(
        proposer="none" if num_draft_tokens is None else "draft",
        num_draft_tokens=num_draft_tokens,
        draft={"model": options.draft},
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


class Assisted:
    """transformers' assisted generation with the same draft."""

    def __init__(self, options: argparse.Namespace, target: Target) -> None:
        path = options.assistant or options.draft or pretrained(target.name, DRAFT_FILE)
        if path is None:
            raise UserError("--draft: none is given, and the model comes without one")
        draft = read_draft_file(Path(path))
        if draft.reads_states:
            raise UserError("--assistant: this draft reads hidden states, which transformers cannot pass on")
        self._assistant = llama_assistant(draft, options.model, target)
        self._side = TransformersSide(
            options.model, torch.bfloat16, target.device, assistant_model=self._assistant
        )
        defaults = self._assistant.generation_config
        self._defaults = (defaults.num_assistant_tokens, defaults.assistant_confidence_threshold)

    def sides(self, prompts: list[list[int]], max_tokens: int, lengths: list[int]) -> dict[str, Side]:
        settings = {"assistant default": self._defaults}
        settings |= {f"assistant {length}": (length, 0.0) for length in lengths}
        return {name: self._run(prompts, max_tokens, *each) for name, each in settings.items()}

    def _run(self, prompts: list[list[int]], max_tokens: int, num_tokens: int, threshold: float) -> Side:
        def tokens_per_s(block: int) -> float:
            own = self._assistant.generation_config
            own.num_assistant_tokens, own.assistant_confidence_threshold = num_tokens, threshold
            own.num_assistant_tokens_schedule = "constant"
            return self._side.tokens_per_s([prompts[block % len(prompts)]], max_tokens)

        return tokens_per_s


def llama_assistant(draft: DraftFile, model_name: str, target: Target) -> Any:
    """A transformers model of the draft's layers between the target's embedding and whole head."""
    whole = load_model(model_name, torch.bfloat16, target.device).model
    config = AutoConfig.for_model(
        **(draft.layers_config | {"vocab_size": target.vocab_size, "tie_word_embeddings": False})
    )
    assistant = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(False)
    layers = {name: tensor for name, tensor in draft.tensors.items() if name != "head.weight"}
    report = assistant.model.load_state_dict(layers, strict=False)
    assert report.missing_keys == ["embed_tokens.weight"], report.missing_keys
    assert not report.unexpected_keys, report.unexpected_keys
    assistant.to(target.device)
    assistant.get_input_embeddings().weight = whole.get_input_embeddings().weight
    assistant.get_output_embeddings().weight = whole.get_output_embeddings().weight
    assistant.generation_config.eos_token_id = whole.generation_config.eos_token_id
    return assistant


if __name__ == "__main__":
    main()
