"""vLLM's own OpenAI server, as ``foredraft serve`` starts it, seen by a client (F51, F55, F57, F183)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from vllm_server import PROMPT, complete, metrics, text_of

pytestmark = pytest.mark.vllm

POSITION_0 = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"}'


def test_controls_that_vllm_refuses_under_speculation_are_served(server: str) -> None:
    banned = text_of(complete(server, logit_bias={str(token): -100 for token in range(0, 256, 2)}))
    assert banned != text_of(complete(server))
    seeded = {"temperature": 1.0, "min_p": 0.1, "seed": 3}
    assert text_of(complete(server, **seeded)) == text_of(complete(server, **seeded))


def test_a_mixed_batch_with_logprobs_and_grammar_leaves_the_server_alive(server: str) -> None:
    options: list[dict[str, Any]] = [
        {"logprobs": 0},
        {"logprobs": 1},
        {"logprobs": 5},
        {"temperature": 0.8, "top_p": 0.9},
        {"structured_outputs": {"regex": "[abc]{3}-[0-9]{2}"}},
        {"presence_penalty": 1.0, "min_tokens": 5},
    ]
    with ThreadPoolExecutor(len(options)) as pool:
        responses = list(pool.map(lambda one: complete(server, **one), options))
    assert [response.status_code for response in responses] == [200] * len(options)
    assert text_of(responses[0]) == text_of(responses[2]) == text_of(complete(server))
    grammar = text_of(responses[4])
    assert len(grammar) == 6
    assert grammar[3] == "-"
    chosen = [response.json()["choices"][0]["logprobs"]["token_logprobs"] for response in responses[:3]]
    assert all(-20 < logprob < 0 for logprob in chosen[0])
    assert chosen[0] == pytest.approx(chosen[1], abs=1e-5)
    assert chosen[0] == pytest.approx(chosen[2], abs=1e-5)


def test_streamed_text_is_the_whole_text_and_a_client_may_leave(server: str) -> None:
    import httpx

    body = {"model": "toy", "prompt": PROMPT, "temperature": 0, "max_tokens": 24, "stream": True}
    pieces = []
    with httpx.stream("POST", f"{server}/v1/completions", json=body, timeout=120) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
    assert "".join(pieces) == text_of(complete(server))
    with httpx.stream("POST", f"{server}/v1/completions", json=body | {"max_tokens": 200}) as response:
        next(response.iter_lines())
    assert "".join(pieces) == text_of(complete(server)), "the server goes on"


def test_metrics_of_the_worker_reach_the_server(server: str) -> None:
    """Drafted and accepted are counted in the worker and, by vLLM, in the scheduler: they must agree."""
    before, before_vllm = metrics(server), metrics(server, "vllm:")
    text_of(complete(server, prompt="ab" * 20, max_tokens=64))
    after, after_vllm = metrics(server), metrics(server, "vllm:")
    gained = {name: value - before.get(name, 0.0) for name, value in after.items()}
    gained_vllm = {name: value - before_vllm.get(name, 0.0) for name, value in after_vllm.items()}
    assert 0 < gained["foredraft_accepted_tokens_total"] <= gained["foredraft_drafted_tokens_total"]
    for own, of_vllm in (
        ("foredraft_drafted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
        ("foredraft_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"),
        ("foredraft_emitted_tokens_total", "vllm:generation_tokens_total"),
        ('foredraft_accepted_per_position_total{position="0"}', POSITION_0),
    ):
        assert gained[own] == gained_vllm[of_vllm], own
    assert gained["foredraft_proposer_seconds_total"] > 0
    assert gained["foredraft_verifier_seconds_total"] > 0
    assert after["foredraft_proposer_faults_total"] == 0


def test_statistics_of_a_request_come_with_it(server: str) -> None:
    response = complete(server, prompt="ab" * 20, max_tokens=64)
    found = response.json()["metrics"]["speculative_decoding"]
    assert 0 < found["num_accepted_draft_tokens"] <= found["num_draft_tokens"]
    assert found["num_spec_tokens"] == 5
