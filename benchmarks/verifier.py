"""What verifying costs, beside one ``torch.softmax`` over the same logits in the same run.

One step of B requests with K drafted tokens each, float32. Every case takes turns with the softmax, in
blocks, so that a slow spell of the machine hits both. A block's observation is the ratio of two medians;
given are the median of the blocks' ratios and its 95 % interval from order statistics. "peaked" logits are
3 x standard normal, "flat" ones 0.1 x; drawn drafts come from logits as peaked as the target's, correlated
with them by 0.7. At temperature 1 the peaked nucleus of top-p 0.95 has thousands of tokens, at 0.5 a dozen.

    OMP_NUM_THREADS=2 python benchmarks/verifier.py
    OMP_NUM_THREADS=2 python benchmarks/verifier.py --batch-size 1 --blocks 40

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from paired import median_ratio, print_json
from torch import Tensor

from foredraft.verifier import Draft, DraftProbs, Rule, SamplingBatch, verify

SCALES = {"peaked": 3.0, "flat": 0.1}
CALLS_PER_BLOCK = 3


@dataclass(frozen=True)
class Case:
    """One way of verifying; the controls are the same for every request."""

    name: str
    drawn: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    rule: Rule = "block"


CASES = (
    Case("greedy, point mass", temperature=0.0),
    Case("temperature 1, point mass"),
    Case("temperature 0.8, point mass", temperature=0.8),
    Case("top-k 50, point mass", top_k=50),
    Case("top-p 0.95, point mass", top_p=0.95),
    Case("top-p 0.95 at temperature 0.5", temperature=0.5, top_p=0.95),
    Case("top-k 50 + top-p 0.95, point mass", top_k=50, top_p=0.95),
    Case("temperature 0.8, drawn, block rule", temperature=0.8, drawn=True),
    Case("temperature 0.8, drawn, token rule", temperature=0.8, drawn=True, rule="token"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--draft-tokens", type=int, default=5)
    parser.add_argument("--vocab-size", type=int, default=49_152)
    parser.add_argument("--blocks", type=int, default=25, help="at least 20")
    options = parser.parse_args()
    results = []
    print(f"{'logits':8} {'case':36} {'ratio':>6}  {'95 % interval':14} {'ms':>7}")
    for logits_name, scale in SCALES.items():
        for case, step in steps(scale, options.batch_size, options.draft_tokens, options.vocab_size):
            result = {"logits": logits_name, "case": case.name, **compare(*step, options.blocks)}
            results.append(result)
            interval = f"{result['low']:.2f} - {result['high']:.2f}"
            print(f"{logits_name:8} {case.name:36} {result['ratio']:6.2f}  {interval:14} {result['ms']:7.2f}")
    print_json("verifier", vars(options), results)


def steps(
    scale: float, batch_size: int, num_draft_tokens: int, vocab_size: int
) -> list[tuple[Case, tuple[Callable[[], object], Callable[[], object]]]]:
    """Each case with its step and the softmax it is measured against."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch_size, num_draft_tokens + 1, vocab_size)
    target = torch.randn(shape, generator=generator) * scale
    other = torch.randn(shape, generator=generator) * scale
    draft_probs = ((target + other) / 2**0.5)[:, :-1].softmax(-1).contiguous()
    logits = target.flatten(0, 1)
    drawn = draft_of(draft_probs, generator)
    point_mass = Draft(drawn.token_ids, drawn.lengths)

    def step(case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
        draft, sampling = drawn if case.drawn else point_mass, sampling_of(case, batch_size)
        return lambda: verify(logits, draft, sampling, case.rule), lambda: torch.softmax(logits, dim=-1)

    return [(case, step(case)) for case in CASES]


def draft_of(draft_probs: Tensor, generator: torch.Generator) -> Draft:
    batch_size, num_draft_tokens, _ = draft_probs.shape
    flat = draft_probs.flatten(0, 1)
    token_ids = torch.multinomial(flat, 1, generator=generator).view(batch_size, num_draft_tokens)
    lengths = torch.full((batch_size,), num_draft_tokens)
    return Draft(token_ids, lengths, DraftProbs(torch.arange(batch_size), draft_probs))


def sampling_of(case: Case, batch_size: int) -> SamplingBatch:
    return SamplingBatch(
        temperature=torch.full((batch_size,), case.temperature),
        request_keys=torch.arange(batch_size),
        block_starts=torch.full((batch_size,), 100),
        top_k=torch.full((batch_size,), case.top_k) if case.top_k else None,
        top_p=torch.full((batch_size,), case.top_p) if case.top_p < 1 else None,
    )


def compare(step: Callable[[], object], baseline: Callable[[], object], num_blocks: int) -> dict[str, float]:
    """Median ratio of step to baseline with its 95 % interval, and the step's median time."""
    step(), baseline()
    pairs = [(median_ms(step), median_ms(baseline)) for _ in range(num_blocks)]
    interval = median_ratio([step_ms for step_ms, _ in pairs], [baseline_ms for _, baseline_ms in pairs])
    return {
        "ratio": round(interval["median"], 3),
        "low": round(interval["low"], 3),
        "high": round(interval["high"], 3),
        "ms": round(statistics.median(step_ms for step_ms, _ in pairs), 3),
    }


def median_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(CALLS_PER_BLOCK):
        begin = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - begin) / 1e6)
    return statistics.median(times)


if __name__ == "__main__":
    main()
