"""What ``foredraft simulate`` predicts, against what is measured on this machine.

    python benchmarks/simulated_speed.py --proposer draft --batch-sizes 1,4
    python benchmarks/simulated_speed.py --proposer early_exit

For each batch size: costs and acceptance are measured as ``foredraft align`` does, the simulator predicts the
speedup of each fixed number of draft tokens and of the controller, and the engine then serves the same
prompts with each of them and with none, in interleaved blocks. Given are prediction, measurement and their
ratio, and the median of how far they are apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from drafting_options import add_drafting_options, drafting_values
from paired import interleaved, median_ratio, print_json, shown
from prompts import chat_ids

from foredraft.integration.align.costs import Costs, measure_costs
from foredraft.integration.config import AUTO, Config
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.simulate.predict import Prediction, predict
from foredraft.scheduler.hardware_model.cost_model import Measured


def main() -> None:
    options = parsed()
    target = load_target(Config(model=options.model, dtype="bfloat16"))
    prompts = chat_ids(target.tokenizer, options.workload, None, options.prompts)
    results, errors = {}, []
    for batch in map(int, options.batch_sizes.split(",")):
        predicted = prediction(target, prompts, batch, options)
        sides: dict[str, Callable[[int], float]] = {
            str(length): side(target, prompts, batch, length, options)
            for length in (0, *range(1, options.draft_tokens + 1), AUTO)
        }
        for one in sides.values():
            one(0)
        speeds = interleaved(sides, options.blocks)
        for name, said in [*enumerate(predicted.speedups, 1), (AUTO, predicted.controller)]:
            found = median_ratio(speeds[str(name)], speeds["0"])
            errors.append(abs(said / found["median"] - 1))
            print(f"batch {batch}, K = {name}: predicted {said:.3f}, measured {shown(found)}")
            results[f"batch {batch}, K = {name}"] = {"predicted": said, "measured": found}
    print(f"apart by {statistics.median(errors):.1%} at the median, {max(errors):.1%} at most")
    print_json("simulated_speed", vars(options), {"median_error": statistics.median(errors), **results})


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_drafting_options(parser)
    parser.add_argument("--workload", default="chat", help="a built-in workload or a JSONL file")
    parser.add_argument("--draft-tokens", type=int, default=3, help="the largest fixed number")
    parser.add_argument("--batch-sizes", default="1,4", help="comma list")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring costs, for each batch size")
    return parser.parse_args()


def prediction(
    target: Target, prompts: list[list[int]], batch: int, options: argparse.Namespace
) -> Prediction:
    """From costs and acceptance measured now."""
    engine = build_engine(config_of(target, prompts, batch, options.draft_tokens, options), target)
    costs = measure_costs(engine, prompts, 0.0, batch_size=batch, seconds=options.seconds)
    if costs is None:
        raise SystemExit("the costs could not be measured: drafts are shorter than asked for")
    engine.generate(prompts, SamplingParams(temperature=0, max_tokens=options.max_tokens))
    metrics = engine.metrics
    pairs = zip(metrics.accepted_per_position, metrics.verified_per_position, strict=True)
    reached = [metrics.verified_per_position[0], *metrics.accepted_per_position[:-1]]
    acceptance = [accepted / max(judged, 1) for (accepted, _), judged in zip(pairs, reached, strict=True)]
    return predict(as_measured(costs), acceptance, batch)


def as_measured(costs: Costs) -> Measured:
    """The costs as the simulator takes them."""
    step_s = [whole - draft for whole, draft in zip(costs.step_s, costs.draft_s, strict=True)]
    return Measured(costs.batch_size, step_s, costs.draft_s)


def config_of(
    target: Target, prompts: list[list[int]], batch: int, length: int | str, options: argparse.Namespace
) -> Config:
    longest = max(map(len, prompts)) + max(options.max_tokens, 256)
    values: dict[str, Any] = drafting_values(options)
    if length == 0:
        values["proposer"] = "none"
    sizes = {"max_num_seqs": batch, "max_model_len": min(longest, target.max_len)}
    return Config(**values, num_draft_tokens=length or None, engine=sizes)


def side(
    target: Target, prompts: list[list[int]], batch: int, length: int | str, options: argparse.Namespace
) -> Callable[[int], float]:
    """Serves a block with so many drafted tokens and returns its decoding speed, without the prompts.

    Prompts are left out because the simulator knows none: the steps after the first token count.
    """
    engine = build_engine(config_of(target, prompts, batch, length, options), target)
    params = SamplingParams(temperature=0, max_tokens=options.max_tokens, ignore_eos=True)

    def tokens_per_s(block: int) -> float:
        chosen = [prompts[(block * batch + place) % len(prompts)] for place in range(batch)]
        for place, prompt in enumerate(chosen):
            engine.add_request(f"{block}-{place}", prompt, params)
        started: set[str] = set()
        while len(started) < batch:
            started |= {output.request_id for output in engine.step() if output.outputs[0].token_ids}
        before, began = engine.metrics.num_emitted_tokens, time.perf_counter()
        while engine.has_unfinished_requests():
            engine.step()
        return (engine.metrics.num_emitted_tokens - before) / (time.perf_counter() - began)

    return tokens_per_s


if __name__ == "__main__":
    main()
