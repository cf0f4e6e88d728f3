"""What verifying costs the target: one pass over K+1 tokens against one pass over a single token, batch 1.

Passes of every width take turns in blocks; given are the median of the paired ratios and its 95 % interval.
The cache is rolled back after each pass, so that all of them see the same context.

    python benchmarks/target_pass.py
    python benchmarks/target_pass.py --dtype float32 --context 1000 --widths 2,6,9,17

Prints a table, and one line of JSON last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from paired import interleaved, median_interval, median_ratio, print_json, shown

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import build_engine, load_target
from foredraft.proposers import Decoder, Tokens

PASSES_PER_BLOCK = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--context", type=int, default=256, help="tokens already in the cache")
    parser.add_argument("--widths", default="2,4,6,9,11,17", help="tokens in the wider passes")
    parser.add_argument("--blocks", type=int, default=25)
    options = parser.parse_args()
    widths = [1, *map(int, options.widths.split(","))]
    config = Config(model=options.model, dtype=options.dtype, proposer="none", engine={"max_num_seqs": 1})
    decoder = build_engine(config, load_target(config)).decoder
    fill(decoder, options.context)
    seconds = interleaved(
        {str(width): one_pass(decoder, options.context, width) for width in widths}, options.blocks
    )
    results = {}
    print(f"{'tokens':>6} {'ms':>8}  ratio to 1 token [95 %]")
    for width in widths:
        ratio = median_ratio(seconds[str(width)], seconds["1"])
        milliseconds = median_interval(seconds[str(width)])["median"] * 1e3
        results[width] = {"ms": milliseconds, "ratio": ratio}
        print(f"{width:6d} {milliseconds:8.2f}  {shown(ratio)}")
    print_json("target_pass", vars(options), results)


def fill(decoder: Decoder, context: int, row: int = 0) -> None:
    """Put ``context`` tokens into an empty row."""
    for start in range(0, context, 256):
        count = min(256, context - start)
        decoder.forward(Tokens(tokens_like(decoder, count), [row], [start], [count]))


def one_pass(decoder: Decoder, context: int, width: int) -> Callable[[int], float]:
    token_ids = tokens_like(decoder, width)

    def run(_block: int) -> float:
        times = []
        for _ in range(PASSES_PER_BLOCK):
            began = time.perf_counter()
            decoder.head(decoder.forward(Tokens(token_ids, [0], [context], [width]))).argmax(-1).tolist()
            times.append(time.perf_counter() - began)
            decoder.truncate(0, context)
        return sorted(times)[PASSES_PER_BLOCK // 2]

    return run


def tokens_like(decoder: Decoder, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, decoder.vocab_size, (count,), generator=generator).to(decoder.device)


if __name__ == "__main__":
    main()
