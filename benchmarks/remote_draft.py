"""A draft in an actor of its own against the same draft in the engine's process, on a Ray of this machine.

Toy models: the target is the draft with layers more that change nothing, so that every draft is accepted and
the target takes its time. One request at a time. Per step, medians: the time in ``propose`` in process, and
how much more it is through the server without drafting ahead, greedy and sampled with 64 kept tokens at most;
the share of the drafting time that drafting ahead hides. Beside it, what one plain actor call and one step of
a compiled graph take here.

``--shipped`` adds the built-in model with its trained draft: how often the assumption that a draft is
accepted whole and the bonus token guessed comes true, beside the prediction from acceptance rates.

    OMP_NUM_THREADS=1 python benchmarks/remote_draft.py
    OMP_NUM_THREADS=1 python benchmarks/remote_draft.py --shipped --prompts 8

Prints a table, and one line of JSON last. Target and draft need a core each that nobody else uses.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import ray
import torch
from paired import print_json
from prompts import chat_ids
from ray.dag import InputNode
from transformers import LlamaConfig, LlamaForCausalLM

from foredraft.integration.config import Config, replaced
from foredraft.integration.draft_service.hosting import HostedFactory
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.scheduler.draft_server.actor import start_draft_server

NAMESPACE = "benchmark"
SAMPLINGS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 1.0, "top_k": 64, "seed": 1}}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draft-tokens", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--prompts", type=int, default=8, help="of the built-in chat workload, for --shipped")
    parser.add_argument("--temp-dir", help="where Ray keeps its logs and sockets")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ray.init(address="local", num_cpus=4, include_dashboard=False, _temp_dir=options.temp_dir)
    try:
        results: dict[str, Any] = {"call_ms": call_times()}
        print("one call, ms:", results["call_ms"])
        with tempfile.TemporaryDirectory() as folder:
            results |= toy_results(options, Path(folder))
        if options.shipped:
            results["shipped"] = shipped_results(options)
            print("shipped draft:", results["shipped"])
    finally:
        ray.shutdown()
    print_json("remote_draft", vars(options), results)


# ---- calls


class Echo:
    def echo(self, message: bytes) -> bytes:
        return message


def call_times() -> dict[str, float]:
    """Median milliseconds of a call with 2 kB, there and back: a thread of an actor, a compiled graph."""
    message = b"x" * 2000
    threaded = ray.remote(Echo).options(num_cpus=0, max_concurrency=16).remote()
    plain = timed(lambda: ray.get(threaded.echo.remote(message), timeout=5.0))
    ray.kill(threaded)
    actor = ray.remote(Echo).options(num_cpus=0).remote()
    with InputNode() as given:
        graph = actor.echo.bind(given).experimental_compile()
    compiled = timed(lambda: ray.get(graph.execute(message)))
    graph.teardown()
    ray.kill(actor)
    return {"plain": plain, "compiled": compiled}


def timed(call: Callable[[], Any], times: int = 400) -> float:
    for _ in range(50):
        call()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return round(1000 * median(seconds), 3)


# ---- toy models


def write_toys(folder: Path) -> None:
    """A draft of 2 layers, and a target of 24 whose further layers add nothing to the residual stream."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    common = {"vocab_size": 1000, "max_position_embeddings": 512, "initializer_range": 0.2} | sizes
    draft = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **common))
    target = LlamaForCausalLM(LlamaConfig(num_hidden_layers=24, **common))
    target.load_state_dict(draft.state_dict(), strict=False)
    for layer in target.model.layers[2:]:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    draft.save_pretrained(folder / "draft")
    target.save_pretrained(folder / "target")


def toy_results(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    write_toys(folder)
    config = Config(
        model=str(folder / "target"),
        proposer="draft",
        dtype="float32",
        device="cpu",
        num_draft_tokens=options.draft_tokens,
        draft={"model": str(folder / "draft"), "server_deadline_ms": 1000.0},
        engine={"max_num_seqs": 4},
    )
    actor = start("toy", config)
    target = load_target(config)
    engines = {name: engine_of(config, target, name) for name in ("in process", "off", "on", "auto")}
    results = {}
    for name, sampling in SAMPLINGS.items():
        params = SamplingParams(max_tokens=options.max_tokens, ignore_eos=True, **sampling)
        times: dict[str, list[float]] = {side: [] for side in engines}
        for _ in range(options.rounds):  # in turns, so that what else runs here hits all alike
            for side, engine in engines.items():
                times[side] += propose_times(engine, params)
        results[name] = summary({side: 1000 * median(seconds) for side, seconds in times.items()})
        print(f"{name}, ms a step:", results[name])
    counts = ray.get(actor.statistics.remote())
    results["hit_rate"] = hit_rate(counts)
    ray.kill(actor)
    return results


def hit_rate(counts: dict[str, Any]) -> float:
    """Share of the assumptions about a request that came true."""
    hits, misses = counts["num_ahead_hits"], counts["num_ahead_misses"]
    return round(hits / max(hits + misses, 1), 3)


def summary(propose_ms: dict[str, float]) -> dict[str, float]:
    drafting = propose_ms["in process"]
    hidden = {ahead: (propose_ms["off"] - propose_ms[ahead]) / drafting for ahead in ("on", "auto")}
    return {
        "in_process_ms": round(drafting, 3),
        "added_ms": round(propose_ms["off"] - drafting, 3),
        "hidden_share_on": round(hidden["on"], 2),
        "hidden_share_auto": round(hidden["auto"], 2),
    }


def start(name: str, config: Config) -> Any:
    actor = start_draft_server(name, NAMESPACE, HostedFactory(config), actor_options={"num_cpus": 1})
    ray.get(actor.check.remote(), timeout=300)
    return actor


def engine_of(config: Config, target: Target, side: str) -> EmbeddedEngine:
    if side == "in process":
        return build_engine(config, target)
    served = {"server": f"{NAMESPACE}/toy", "draft_ahead": side}
    return build_engine(replaced(config, draft=config.draft.model_dump() | served), target)


def propose_times(engine: EmbeddedEngine, params: SamplingParams) -> list[float]:
    """Seconds in ``propose`` of each step that drafts, of one request."""
    proposer, seconds = engine.proposer, []
    assert proposer is not None, "all sides draft"
    honest = proposer.propose

    def propose(context: Any) -> Any:
        began = time.perf_counter()
        draft = honest(context)
        seconds.append(time.perf_counter() - began)
        return draft

    proposer.propose = propose  # type: ignore[method-assign]
    engine.generate([[1, 2, 3, 4, 5]], params)
    proposer.propose = honest  # type: ignore[method-assign]
    return seconds[2:]


# ---- the shipped draft


def shipped_results(options: argparse.Namespace) -> dict[str, Any]:
    draft = {"server": f"{NAMESPACE}/shipped", "server_deadline_ms": 5000.0, "draft_ahead": "on"}
    config = Config(proposer="draft", draft=draft, engine={"max_num_seqs": 4, "max_model_len": 1024})
    actor = start("shipped", config)
    engine = build_engine(config, load_target(config))
    prompts = chat_ids(engine.tokenizer, "chat", None, options.prompts)
    for prompt in prompts:
        engine.generate([prompt], SamplingParams(temperature=0, max_tokens=96))
    accepted, verified = engine.metrics.accepted_per_position, engine.metrics.verified_per_position
    # All of a draft accepted, and the bonus token guessed: as likely as the first token of a draft.
    whole, first = accepted[-1] / verified[-1], accepted[0] / verified[0]
    return {
        "num_draft_tokens": len(verified),
        "hit_rate": hit_rate(ray.get(actor.statistics.remote())),
        "predicted": round(whole * first, 3),
    }


if __name__ == "__main__":
    main()
