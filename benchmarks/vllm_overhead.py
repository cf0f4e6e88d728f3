"""What the plugin adds to a step of vLLM, as a share of the step, at batch 8.

Added are the hooks around vLLM's runner: taking down what a step brought, asking the proposer, and deciding
on the drafts; of the last, what vLLM's own sampler takes in the same place is taken off. The proposer drafts
at no cost: it hands out the tokens that were written before, so that every step verifies drafts. A block is
one batch of requests from first to last step; given are medians over blocks with their 95 % intervals.

    VLLM_CPU_KVCACHE_SPACE=1 python benchmarks/vllm_overhead.py
    VLLM_CPU_KVCACHE_SPACE=1 python benchmarks/vllm_overhead.py --temperature 0.8

Prints a table, and one line of JSON last. Needs vLLM.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

from paired import interleaved, median_interval, print_json, shown
from prompts import chat_ids
from vllm_side import runner_of, vllm_engine

from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.vllm.engine import VllmEngine
from foredraft.proposers import DraftContext, Proposer, ReleaseReason
from foredraft.verifier import Draft


class Known(Proposer):
    """Drafts what is known to come, whatever the request: its output is found by its prompt."""

    def __init__(self, runs: Sequence[Sequence[int]]) -> None:
        self._runs = {tuple(run[:16]): run for run in runs}

    def propose(self, context: DraftContext) -> Draft:
        drafts = []
        for tokens, limit in zip(context.token_ids, context.max_draft_tokens, strict=True):
            run = self._runs[tuple(tokens[:16])]
            drafts.append(list(run[len(tokens) : len(tokens) + limit]))
        return Draft.from_lists(drafts, context.sampling.temperature.device)

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        """Nothing is kept."""


class Stopwatch:
    """Adds up the time spent in a method of the runner."""

    def __init__(self, runner: Any, method: str) -> None:
        self.seconds, self.calls = 0.0, 0
        inner = getattr(runner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - began
                self.calls += 1

        setattr(runner, method, timed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--compiled", action="store_true", help="as vLLM runs by default; else eager")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--draft-tokens", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    plain = vllm_engine("none", options.batch, options)
    ours = vllm_engine("ngram", options.batch, options, num_draft_tokens=options.draft_tokens)
    prompts = [
        [number, *ids] for number, ids in enumerate(chat_ids(plain.tokenizer, "chat", None, options.batch))
    ]
    params = [
        SamplingParams(
            temperature=options.temperature, max_tokens=options.max_tokens, ignore_eos=True, seed=number
        )
        for number in range(options.batch)
    ]
    written = ours.generate(prompts, params)  # seeded, ours writes the same for any draft
    runner_of(ours).drafter.proposer = Known(
        [[*prompt, *one.outputs[0].token_ids] for prompt, one in zip(prompts, written, strict=True)]
    )
    sides = {"none": side(plain, prompts, params), "ours": side(ours, prompts, params)}
    for run in sides.values():
        run(0)
    observed = interleaved(sides, options.blocks)
    print_results(observed, options)


def side(
    engine: VllmEngine, prompts: list[list[int]], params: list[SamplingParams]
) -> Callable[[int], dict[str, float]]:
    """Milliseconds per step: in all, in sampling, and in drafting."""
    sampling, drafting = (
        Stopwatch(runner_of(engine), name) for name in ("_sample", "propose_draft_token_ids")
    )

    def run(_block: int) -> dict[str, float]:
        before = (sampling.seconds, sampling.calls, drafting.seconds, engine.metrics.seconds["total"])
        engine.generate(prompts, params)
        steps = sampling.calls - before[1]
        return {
            "step": 1e3 * (engine.metrics.seconds["total"] - before[3]) / steps,
            "sample": 1e3 * (sampling.seconds - before[0]) / steps,
            "draft": 1e3 * (drafting.seconds - before[2]) / steps,
        }

    return run


def print_results(observed: dict[str, list[dict[str, float]]], options: argparse.Namespace) -> None:
    pairs = list(zip(observed["ours"], observed["none"], strict=True))
    results = {
        "step_ms": median_interval([ours["step"] for ours, _ in pairs]),
        "plain_step_ms": median_interval([none["step"] for _, none in pairs]),
        "sample_ms": median_interval([ours["sample"] for ours, _ in pairs]),
        "plain_sample_ms": median_interval([none["sample"] for _, none in pairs]),
        "hooks_ms": median_interval([ours["draft"] for ours, _ in pairs]),
        "share_of_step": median_interval(
            [(ours["draft"] + ours["sample"] - none["sample"]) / ours["step"] for ours, none in pairs]
        ),
        "share_of_plain_step": median_interval(
            [(ours["draft"] + ours["sample"] - none["sample"]) / none["step"] for ours, none in pairs]
        ),
    }
    for name, interval in results.items():
        print(f"{name:20} {shown(interval)}")
    print_json("vllm_overhead", vars(options), results)


if __name__ == "__main__":
    main()
