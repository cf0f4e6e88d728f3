"""The built-in model on shared prompts, its draft on another (pretended) node: float32 output is the same."""

from __future__ import annotations

import os

import pytest

from foredraft.integration.chat import chat_prompt_ids
from foredraft.integration.config import Config, replaced
from foredraft.integration.draft_service.hosting import HostedFactory
from foredraft.integration.embedded.build import Target, build_engine, load_target
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.workloads import load_workload
from foredraft.scheduler.draft_server.actor import start_draft_server

SHARED_DATA = os.environ.get("FOREDRAFT_SHARED_DATA")
NAMESPACE = "real-model"
NUM_PROMPTS = 60
GREEDY = SamplingParams(temperature=0, max_tokens=32)
CONFIG = Config(dtype="float32", device="cpu", engine={"max_num_seqs": 8, "max_model_len": 2048})

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.shared_data,
    pytest.mark.skipif(not SHARED_DATA, reason="FOREDRAFT_SHARED_DATA names no prompt file"),
]


def outputs(config: Config, target: Target, prompts: list[list[int]]) -> tuple[list[list[int]], int]:
    """Tokens of each prompt, and how many of them were accepted drafts."""
    engine = build_engine(config, target)
    tokens = [one.outputs[0].token_ids for one in engine.generate(prompts, GREEDY)]
    assert engine.metrics.num_proposer_faults == 0
    return tokens, engine.metrics.num_accepted_tokens


def test_greedy_ids_equal_plain_decoding(two_nodes: str) -> None:
    """Of every prompt, with the shipped draft, which reads the target's hidden states."""
    import ray

    remote = {"server": f"{NAMESPACE}/drafts", "server_deadline_ms": 2000.0}
    config = replaced(CONFIG, proposer="draft", draft=remote)
    options = {"num_cpus": 1, "resources": {"draft_node": 1}}
    actor = start_draft_server("drafts", NAMESPACE, HostedFactory(config), actor_options=options)
    ray.get(actor.check.remote(60.0), timeout=300)
    target = load_target(CONFIG)
    prompts = [
        chat_prompt_ids(target.tokenizer, [{"role": "user", "content": prompt.turns[0]}])
        for prompt in load_workload(str(SHARED_DATA), limit=NUM_PROMPTS)
    ]
    prompts = [prompt for prompt in prompts if len(prompt) < 2000]
    plain, _ = outputs(replaced(CONFIG, proposer="none"), target, prompts)
    remote_outputs, num_accepted = outputs(config, target, prompts)
    assert len(prompts) > 50
    assert remote_outputs == plain
    assert num_accepted > 100
