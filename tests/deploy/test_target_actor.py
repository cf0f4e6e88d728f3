"""A target and its draft as supervised actors: what happens when each of them dies. Toy models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ray_checks import assert_nothing_left, wait_until
from ray_workers import gpu_plan
from toys import make_engine, random_prompts, run_tokens, toy_decoder

from foredraft.integration.deploy.target_actor import TARGET_ACTOR
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.scheduler.cluster import (
    Deployment,
    LocalCluster,
    RestartPolicy,
    StartOptions,
    WorkerSpec,
    connect,
    start_deployment,
)

pytestmark = pytest.mark.ray

QUICK = RestartPolicy(check_every_s=0.2, check_deadline_s=5, first_wait_s=2, longest_wait_s=2)
OPTIONS = StartOptions(group_deadline_s=20, worker_deadline_s=180, drain_s=5, policy=QUICK)
GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = random_prompts(3, seed=2, longest=10)


def plain_engine() -> EmbeddedEngine:
    return make_engine(toy_decoder(num_rows=4, num_layers=2))


@pytest.fixture(scope="module")
def deployment(ray_environment: None) -> Iterator[Deployment]:
    with connect("local", local=LocalCluster(num_cpus=4, num_gpus=2)):
        target = WorkerSpec("target-0", "target", TARGET_ACTOR, gpu_plan(), {"build": plain_engine}, 100)
        with start_deployment("toy", [target], OPTIONS) as deployment:
            yield deployment
        assert_nothing_left()


def answer(reference: Any) -> Any:
    import ray

    return ray.get(reference, timeout=120)


def test_it_has_the_engines_interface(deployment: Deployment) -> None:
    target = deployment.worker("target-0")
    outputs = answer(target.generate.remote(PROMPTS, GREEDY))
    assert [output.outputs[0].token_ids for output in outputs] == run_tokens(plain_engine(), PROMPTS, GREEDY)
    answer(target.add_request.remote("mine", PROMPTS[0], GREEDY))
    newest, output = None, answer(target.next_output.remote("mine"))
    while output is not None:
        newest, output = output, answer(target.next_output.remote("mine"))
    assert newest is not None
    assert newest.finished
    assert newest.outputs[0].token_ids == outputs[0].outputs[0].token_ids
    with pytest.raises(UserError, match="'mine' is not open"):
        answer(target.next_output.remote("mine"))


def test_an_aborted_request_leaves_nothing(deployment: Deployment) -> None:
    target = deployment.worker("target-0")
    answer(target.add_request.remote("long", PROMPTS[0], SamplingParams(max_tokens=200)))
    answer(target.abort.remote("long"))
    assert answer(target.check.remote())["open_requests"] == 0


def test_the_death_of_the_target_is_known_and_open_requests_end_with_an_error(deployment: Deployment) -> None:
    """F143: health said OK after workers had died, and requests waited for ever."""
    import ray

    target = deployment.worker("target-0")
    waiting = target.generate.remote(PROMPTS * 20, SamplingParams(max_tokens=200, ignore_eos=True))
    ray.kill(target, no_restart=True)
    with pytest.raises(ray.exceptions.RayActorError):
        answer(waiting)
    wait_until(lambda: deployment.reports()[0].state == "waiting")
    assert "its process died" in str(deployment.reports()[0].last_fault)
    wait_until(lambda: deployment.reports()[0].state == "running")
    again = answer(deployment.worker("target-0").generate.remote(PROMPTS, GREEDY))
    assert [output.outputs[0].token_ids for output in again] == run_tokens(plain_engine(), PROMPTS, GREEDY)
