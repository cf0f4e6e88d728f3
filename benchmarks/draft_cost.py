"""What one drafting step costs against one step of the target, per batch size.

The drafting loop with 1 and with K + 1 tokens and one target pass over a token take turns in blocks. A step's
cost is the slope, (t(K + 1) - t(1)) / K; ``first`` is the first token, which also reads what was committed.
Given are the medians of the ratios within a block and their 95 % intervals. Caches are rolled back.

    python benchmarks/draft_cost.py
    python benchmarks/draft_cost.py --draft DRAFT --batch-sizes 1 --temperature 1

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from paired import interleaved, median_interval, print_json, shown

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import Target, load_target
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import LoadedDraft, load_draft
from foredraft.proposers import Tokens
from foredraft.proposers.drafting import DraftingRows, draft_tokens
from foredraft.verifier import SamplingBatch

STEPS = 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", help="draft model; default the one that comes with the model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--context", type=int, default=256, help="tokens already in the caches")
    parser.add_argument("--batch-sizes", default="1,8")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--blocks", type=int, default=40)
    options = parser.parse_args()
    config = Config(
        model=options.model, dtype=options.dtype, proposer="draft", draft={"model": options.draft}
    )
    target = load_target(config)
    draft = load_draft(config, target)
    results = {}
    for batch_size in map(int, options.batch_sizes.split(",")):
        seconds = interleaved(
            sides(target, draft, batch_size, options.context, options.temperature), options.blocks
        )
        results[batch_size] = report(batch_size, seconds)
    print_json("draft_cost", vars(options), results)


def report(batch_size: int, seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    blocks = list(zip(seconds["target"], seconds["draft 1"], seconds[f"draft {STEPS + 1}"], strict=True))
    steps = [(many - one) / STEPS for _, one, many in blocks]
    result = {
        "step_ratio": median_interval(
            [step / target for step, (target, _, _) in zip(steps, blocks, strict=True)]
        ),
        "first_ratio": median_interval([one / target for target, one, _ in blocks]),
        "step_ms": median_interval([step * 1e3 for step in steps]),
        "target_ms": median_interval([target * 1e3 for target, _, _ in blocks]),
    }
    print(f"batch {batch_size}: drafting step / target step {shown(result['step_ratio'])}")
    print(f"batch {batch_size}: first drafted token / target step {shown(result['first_ratio'])}")
    print(
        f"batch {batch_size}: step {result['step_ms']['median']:.2f} ms, "
        f"target {result['target_ms']['median']:.2f} ms"
    )
    return result


def sides(
    target: Target, draft: LoadedDraft, batch_size: int, context: int, temperature: float
) -> dict[str, Callable[[int], float]]:
    capacity = context + STEPS + 2
    big = SlotDecoder(target.prepared, batch_size, capacity, target.max_len, target.vocab_size)
    small = SlotDecoder(draft.prepared, batch_size, capacity, draft.max_len, draft.vocab_size)
    rows = list(range(batch_size))
    generator = torch.Generator().manual_seed(0)
    vocab_size = min(draft.vocab_size, target.vocab_size)
    prompt = torch.randint(0, vocab_size, (batch_size * context,), generator=generator).to(big.device)
    read = Tokens(prompt, rows, [0] * batch_size, [context] * batch_size)
    states = big.forward(read)
    small.forward(read, states=states.to(small.device) if draft.reads_states else None)
    newest = Tokens(prompt[:batch_size], rows, [context] * batch_size, [1] * batch_size)
    sampling = sampling_of(batch_size, context, temperature, small.device)

    def target_pass() -> None:
        big.head(big.forward(newest)).argmax(-1).tolist()

    def drafting(count: int) -> None:
        own = states[:batch_size].to(small.device) if draft.reads_states else None
        wanted = DraftingRows(newest, own, [count] * batch_size, sampling)
        draft_tokens(small, draft.head_ids, wanted).token_ids.tolist()

    def timed(call: Callable[[], None]) -> Callable[[int], float]:
        def run(_block: int) -> float:
            for row in rows:
                big.truncate(row, context)
                small.truncate(row, context)
            began = time.perf_counter()
            call()
            return time.perf_counter() - began

        run(0)
        return run

    return {
        "target": timed(target_pass),
        "draft 1": timed(lambda: drafting(1)),
        f"draft {STEPS + 1}": timed(lambda: drafting(STEPS + 1)),
    }


def sampling_of(
    batch_size: int, context: int, temperature: float, device: torch.device
) -> SamplingBatch | None:
    if temperature == 0:
        return None
    return SamplingBatch(
        temperature=torch.full((batch_size,), temperature, device=device),
        request_keys=torch.arange(batch_size, device=device),
        block_starts=torch.full((batch_size,), context, device=device),
    )


if __name__ == "__main__":
    main()
