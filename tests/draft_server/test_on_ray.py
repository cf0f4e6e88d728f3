"""The draft in an actor on another (pretended) node; the target's engine in this process."""

from __future__ import annotations

import copy
import logging
import time
from functools import partial
from typing import Any

import pytest
from draft_service import card_of, toy_hosted
from toy_drafts import draft_decoder, draft_forward
from toys import TOY_VOCAB, make_engine, random_prompts, run_tokens, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.proposers.remote import RemoteProposer
from foredraft.scheduler.draft_server.actor import start_draft_server
from foredraft.scheduler.draft_server.ray_channel import RayChannel

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("two_nodes")]

NAMESPACE = "draft-tests"
GREEDY = SamplingParams(temperature=0, max_tokens=24)
SAMPLED = SamplingParams(temperature=1, top_k=50, seed=5, max_tokens=12)
PROMPTS = random_prompts(8, seed=3, longest=30)
MODEL = toy_model(2)
TARGET = prepare_model(copy.deepcopy(MODEL))
DEADLINE_S = 2.0


def start(name: str, reads_states: bool = False) -> Any:
    import ray

    options = {"num_cpus": 0, "resources": {"draft_node": 1}}
    actor = start_draft_server(name, NAMESPACE, partial(toy_hosted, reads_states), actor_options=options)
    ray.get(actor.check.remote(), timeout=60)
    return actor


def engine_with(proposer: Proposer | None, reads_states: bool = False) -> EmbeddedEngine:
    decoder = SlotDecoder(TARGET, 4, 256, 512, TOY_VOCAB, keep_states=256 * reads_states)
    return make_engine(decoder, proposer, 3)


def remote(name: str, target_id: str, reads_states: bool = False) -> RemoteProposer:
    card = card_of(target_id, reads_states, "auto")
    proposer = RemoteProposer(RayChannel(name, NAMESPACE), card, deadline_s=DEADLINE_S)
    assert proposer.attach(30).refusal is None
    return proposer


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run_tokens(engine_with(None), PROMPTS, GREEDY)


@pytest.fixture(scope="module")
def server(two_nodes: str) -> Any:
    return start("plain")


def node_of(actor: Any) -> str:
    import ray

    node: str = ray.get(actor.__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id()))
    return node


def test_greedy_ids_are_those_of_plain_decoding(server: Any, plain: list[list[int]]) -> None:
    import ray

    assert node_of(server) != ray.get_runtime_context().get_node_id()
    engine = engine_with(remote("plain", "greedy"))
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_accepted_tokens > 20
    assert engine.metrics.num_proposer_faults == 0


def test_sampled_ids_are_those_of_the_draft_in_process(server: Any) -> None:
    """As long as no draft is late: the lengths of the drafts are the same then."""
    draft = DraftModelProposer(draft_decoder(draft_forward(MODEL, reads_states=False)))
    here = run_tokens(engine_with(draft), PROMPTS, SAMPLED)
    proposer = remote("plain", "sampled")
    there = run_tokens(engine_with(proposer), PROMPTS, SAMPLED)
    assert there == here or proposer.counts.num_late > 0


def test_a_draft_that_reads_states(plain: list[list[int]]) -> None:
    import ray

    actor = start("states", reads_states=True)
    engine = engine_with(remote("states", "target", True), reads_states=True)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert engine.metrics.num_accepted_tokens > 20
    ray.kill(actor)


def test_two_targets_share_a_server(server: Any, plain: list[list[int]]) -> None:
    import ray

    engines = [engine_with(remote("plain", name)) for name in ("one", "two")]
    for engine in engines:
        for number, prompt in enumerate(PROMPTS):
            engine.add_request(str(number), prompt, GREEDY)
    finished: list[dict[str, list[int]]] = [{}, {}]
    while any(engine.has_unfinished_requests() for engine in engines):
        for engine, outputs in zip(engines, finished, strict=True):
            for one in engine.step():
                outputs[one.request_id] = one.outputs[0].token_ids
    for outputs in finished:
        assert [outputs[str(number)] for number in range(len(PROMPTS))] == plain
    assert ray.get(server.statistics.remote())["num_faults"] == 0


def test_a_drained_server_answers_that_it_is_busy(plain: list[list[int]]) -> None:
    import ray

    actor = start("drained")
    proposer = remote("drained", "target")
    assert ray.get(actor.drain.remote(10.0), timeout=30)
    engine = engine_with(proposer)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert proposer.counts.num_busy >= 1
    assert engine.metrics.num_drafted_tokens == 0
    ray.kill(actor)


def test_killed_under_load_and_started_again(
    plain: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    """F143: nothing lost or wrong, its death is said, and drafts are accepted again after each start."""
    import ray

    actor = start("mortal")
    first = ray.get(actor.incarnation.remote())
    proposer = remote("mortal", "target")
    engine = engine_with(proposer)
    assert run_tokens(engine, PROMPTS, GREEDY) == plain
    for number in range(2):
        for place, prompt in enumerate(PROMPTS):
            engine.add_request(f"{number}-{place}", prompt, GREEDY)
        outputs: dict[str, list[int]] = {}
        for step in range(1000):
            if not engine.has_unfinished_requests():
                break
            if step == 6:
                ray.kill(actor)
            outputs |= {one.request_id: one.outputs[0].token_ids for one in engine.step()}
        assert [outputs[f"{number}-{place}"] for place in range(len(PROMPTS))] == plain
        assert proposer.counts.num_lost > number
        assert "draft server: lost" in caplog.text
        actor = start("mortal")
        assert ray.get(actor.incarnation.remote()) != first
        accepted_again(engine)
    ray.kill(actor)


def accepted_again(engine: EmbeddedEngine) -> None:
    """Within a minute the server's new life is found and drafts."""
    before, ends = engine.metrics.num_accepted_tokens, time.monotonic() + 60
    while engine.metrics.num_accepted_tokens <= before:
        assert time.monotonic() < ends
        run_tokens(engine, PROMPTS[:2], GREEDY)


def test_a_server_that_hangs_costs_a_deadline_now_and_then(
    plain: list[list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    """Its process is there and does not answer."""
    import ray

    actor = start("hanging")
    proposer = remote("hanging", "target")
    proposer._link.deadline_s = 0.05
    engine = engine_with(proposer)
    ray.get(actor.__ray_call__.remote(lambda self: self._server._busy.acquire()))
    with caplog.at_level(logging.WARNING):
        assert run_tokens(engine, PROMPTS, GREEDY) == plain
    assert proposer.counts.num_late >= 1
    assert proposer.counts.seconds_waiting < 0.1 * engine.metrics.num_steps
    assert sum("no draft within" in message for message in caplog.messages) == 1
    ray.kill(actor)
