"""The draft killed again and again, under its supervisor, while clients keep a target busy."""

from __future__ import annotations

import asyncio
import copy
import os
import statistics
import time
from collections.abc import Sequence
from functools import partial

import pytest
from draft_service import card_of, toy_hosted
from ray_workers import gpu_bundle, worker_plan
from toys import TOY_VOCAB, make_engine, random_prompts, run_tokens, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.engine_loop import EngineLoop
from foredraft.proposers import Proposer
from foredraft.proposers.remote import RemoteProposer
from foredraft.scheduler.cluster import Deployment, RestartPolicy, StartOptions, start_deployment
from foredraft.scheduler.cluster.worker import WorkerSpec
from foredraft.scheduler.draft_server.actor import MOST_CALLS
from foredraft.scheduler.draft_server.ray_channel import RayChannel

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("two_nodes")]

NUM_KILLS = int(os.environ.get("FOREDRAFT_KILLS", "5"))
"""Few by default: each costs the time in which a process loads torch."""

NUM_CLIENTS, NUM_REQUESTS = 8, 300
BACK_WITHIN_S = 120.0
POLL_S = 0.02
PAUSE_S = 0.2
"""Between two requests of a client: the CPU is for the draft that starts, too."""

GREEDY = SamplingParams(temperature=0, max_tokens=24)
PROMPTS = random_prompts(8, seed=3, longest=30)
TARGET = prepare_model(copy.deepcopy(toy_model(2)))
QUICK = RestartPolicy(check_every_s=0.2, first_wait_s=0.1, longest_wait_s=0.1, max_restarts=100)


def engine_with(proposer: Proposer | None) -> EmbeddedEngine:
    return make_engine(SlotDecoder(TARGET, 4, 256, 512, TOY_VOCAB), proposer, 3)


def deployment_of_a_draft() -> Deployment:
    arguments = {"factory": partial(toy_hosted, False), "options": None}
    spec = WorkerSpec(
        "draft",
        "draft",
        "foredraft.scheduler.draft_server.actor:DraftActor",
        worker_plan(gpu_bundle(gpus=0, cpus=1)),
        arguments,
        max_concurrency=MOST_CALLS,
    )
    return start_deployment("killed", [spec], StartOptions(policy=QUICK, drain_s=1))


async def client(loop: EngineLoop, number: int, plain: Sequence[Sequence[int]], stop: asyncio.Event) -> int:
    """Asks until told to stop; every answer must be the right one."""
    num_answers = 0
    while not stop.is_set():
        place = (number + num_answers) % len(PROMPTS)
        submission = await loop.submit([PROMPTS[place]], GREEDY)
        last = None
        while outputs := await submission.next_outputs():
            last = outputs[-1][1].outputs[0]
        loop.close(submission)
        assert last is not None
        assert last.token_ids == plain[place]
        num_answers += 1
        await asyncio.sleep(PAUSE_S)
    return num_answers


async def kill_and_wait(deployment: Deployment, engine: EmbeddedEngine) -> float:
    """Seconds until drafts are accepted again."""
    import ray

    ray.kill(deployment.worker("draft"), no_restart=True)
    began = time.monotonic()
    while deployment.reports()[0].state == "running":
        await asyncio.sleep(POLL_S)
    before = engine.metrics.num_accepted_tokens
    while engine.metrics.num_accepted_tokens <= before:
        assert time.monotonic() - began < BACK_WITHIN_S
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began


async def kill_under_load(
    deployment: Deployment, engine: EmbeddedEngine, plain: Sequence[Sequence[int]]
) -> tuple[int, list[float]]:
    """How many were answered, and how long each restart took."""
    loop, stop = EngineLoop(engine), asyncio.Event()
    loop.start()
    clients = [asyncio.create_task(client(loop, number, plain, stop)) for number in range(NUM_CLIENTS)]
    seconds = [await kill_and_wait(deployment, engine) for _ in range(NUM_KILLS)]
    while engine.metrics.num_emitted_tokens < NUM_REQUESTS * GREEDY.max_tokens:
        await asyncio.sleep(POLL_S)
    stop.set()
    num_answers = sum(await asyncio.gather(*clients))
    await loop.stop()
    return num_answers, seconds


def test_nothing_is_lost_or_wrong_and_drafts_come_back() -> None:
    plain = run_tokens(engine_with(None), PROMPTS, GREEDY)
    with deployment_of_a_draft() as deployment:
        channel = RayChannel("draft", deployment.namespace)
        proposer = RemoteProposer(channel, card_of("target", False, "auto"), deadline_s=0.2)
        assert proposer.attach(30).refusal is None
        engine = engine_with(proposer)
        num_answers, seconds = asyncio.run(kill_under_load(deployment, engine, plain))
        restarts = deployment.reports()[0].restarts
    print(
        f"{num_answers} requests, {restarts} restarts; drafts accepted again after "
        f"{statistics.median(seconds):.1f} s (median), {max(seconds):.1f} s (longest)"
    )
    assert num_answers >= NUM_REQUESTS
    assert restarts == NUM_KILLS
    assert engine.metrics.num_proposer_faults == 0
