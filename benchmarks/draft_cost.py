"""What one drafting step costs against one step of the target, per batch size.

The drafting loop with 1 and with K + 1 tokens and one target pass over a token take turns in blocks. A step's
cost is the slope, (t(K + 1) - t(1)) / K; ``first`` is the first token, which also reads what was committed.
Given are the medians of the ratios within a block and their 95 % intervals. Caches are rolled back.

    python benchmarks/draft_cost.py
    python benchmarks/draft_cost.py --draft DRAFT --batch-sizes 1 --temperature 1
    python benchmarks/draft_cost.py --proposer early_exit

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from drafting_options import add_drafting_options, drafting_values
from paired import interleaved, median_interval, print_json, shown

from foredraft.integration.config import Config, replaced
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.proposers import Tokens
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.proposers.drafting import DraftingRows, draft_tokens
from foredraft.proposers.early_exit import EarlyExitProposer
from foredraft.verifier import SamplingBatch

STEPS = 4


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_drafting_options(parser)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--context", type=int, default=256, help="tokens already in the caches")
    parser.add_argument("--batch-sizes", default="1,8")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--blocks", type=int, default=40)
    options = parser.parse_args()
    config = Config(**drafting_values(options), dtype=options.dtype)
    target = load_target(config)
    results = {}
    for batch_size in map(int, options.batch_sizes.split(",")):
        seconds = interleaved(
            sides(config, target, batch_size, options.context, options.temperature), options.blocks
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
    config: Config, target: Target, batch_size: int, context: int, temperature: float
) -> dict[str, Callable[[int], float]]:
    sizes = {"max_num_seqs": batch_size, "max_model_len": context + STEPS + 2}
    plain, drafting = (
        build_engine(replaced(config, proposer=proposer, engine=sizes), target)
        for proposer in ("none", config.proposer)
    )
    rows = list(range(batch_size))
    ids = torch.randint(0, 4096, (batch_size * context,), generator=torch.Generator().manual_seed(0))
    read = Tokens(ids.to(target.device), rows, [0] * batch_size, [context] * batch_size)
    newest = Tokens(read.token_ids[:batch_size], rows, [context] * batch_size, [1] * batch_size)
    plain.decoder.forward(read)
    states = drafting.decoder.forward(read)
    drafter = drafting.proposer
    assert isinstance(drafter, DraftModelProposer | EarlyExitProposer)
    small, reads_states = drafter.decoder, drafter.needs_hidden_states
    if isinstance(drafter, DraftModelProposer):
        small.forward(read, states=states.to(small.device) if reads_states else None)
    own = states[:batch_size].to(small.device) if reads_states else None
    sampling = sampling_of(batch_size, context, temperature, small.device)

    def target_pass() -> None:
        plain.decoder.head(plain.decoder.forward(newest)).argmax(-1).tolist()

    def draft(count: int) -> None:
        wanted = DraftingRows(newest, own, [count] * batch_size, sampling)
        draft_tokens(small, drafter.head_ids, wanted).token_ids.tolist()

    def timed(call: Callable[[], None]) -> Callable[[int], float]:
        def run(_block: int) -> float:
            for row in rows:
                plain.decoder.truncate(row, context)
                small.truncate(row, context)
            began = time.perf_counter()
            call()
            return time.perf_counter() - began

        run(0)
        return run

    return {
        "target": timed(target_pass),
        "draft 1": timed(lambda: draft(1)),
        f"draft {STEPS + 1}": timed(lambda: draft(STEPS + 1)),
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
