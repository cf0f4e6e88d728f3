"""What a client gets with drafts is what it gets from a stock vLLM: reported faults, over HTTP."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from vllm_server import complete, metrics

pytestmark = pytest.mark.vllm

LOOPING = "one two three one two three one two"


def answer(server: str, **options: Any) -> dict[str, Any]:
    """The first choice and the usage, without what differs from server to server."""
    response = complete(server, **options)
    assert response.status_code == 200, response.text
    document = response.json()
    choice = {name: document["choices"][0][name] for name in ("text", "finish_reason", "stop_reason")}
    return choice | {"usage": document["usage"]["completion_tokens"]}


def test_stops_inside_an_accepted_block(server: str, plain_server: str) -> None:
    """F37, F39, F41: wherever in a block the end falls, the client sees what it sees without speculation."""
    whole = answer(plain_server, prompt=LOOPING, max_tokens=64)["text"]
    stops = [{"stop": whole[place : place + 3]} for place in range(20, 44, 3)]
    lengths = [{"max_tokens": length} for length in range(1, 12)]
    kept = {"stop": whole[30:33], "include_stop_str_in_output": True}
    both = {"stop": whole[30:33], "max_tokens": 33}
    asked = [{"prompt": LOOPING, "max_tokens": 64} | one for one in (*stops, *lengths, kept, both)]
    drafted_before = metrics(server)["foredraft_accepted_tokens_total"]
    with ThreadPoolExecutor(4) as pool:
        expected = list(pool.map(lambda one: answer(plain_server, **one), asked))
        found = list(pool.map(lambda one: answer(server, **one), asked))
    assert found == expected
    assert {one["finish_reason"] for one in found} == {"stop", "length"}
    assert metrics(server)["foredraft_accepted_tokens_total"] > drafted_before


def test_a_stream_ends_where_the_text_ends_and_usage_counts_what_came(server: str, plain_server: str) -> None:
    """F37 in the stream; a delta may hold several tokens."""
    from openai import OpenAI

    texts = {}
    for address in (server, plain_server):
        client = OpenAI(base_url=f"{address}/v1", api_key="none")
        stream = client.completions.create(
            model="toy",
            prompt=LOOPING,
            temperature=0,
            max_tokens=48,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        texts[address] = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.completion_tokens == 48
        if address == server:
            assert len(chunks) < 48, "deltas of more than one token"
    assert texts[server] == texts[plain_server]


def test_logprobs_are_those_of_a_stock_vllm(server: str, plain_server: str) -> None:
    """F47: each within rounding, drafts stay on (F49)."""
    before = metrics(server)["foredraft_accepted_tokens_total"]
    found, expected = (
        complete(address, prompt=LOOPING, max_tokens=40, logprobs=3).json()["choices"][0]["logprobs"]
        for address in (server, plain_server)
    )
    assert found["tokens"] == expected["tokens"]
    assert found["token_logprobs"] == pytest.approx(expected["token_logprobs"], abs=1e-4)
    for own, other in zip(found["top_logprobs"], expected["top_logprobs"], strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    assert metrics(server)["foredraft_accepted_tokens_total"] > before


def test_a_schema_gives_valid_json_whatever_is_drafted(server: str, plain_server: str) -> None:
    """F53, F57, F59: drafts run past the grammar's end and against it."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": {"enum": ["x", "y"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    options = {"structured_outputs": {"json": schema}, "max_tokens": 80}
    prompts = ['{"a": true, "b": "x"} {"a": true, "b": "x"} {"a": true, "b": "y"} ', LOOPING]
    for prompt in prompts:
        found = answer(server, prompt=prompt, **options)
        assert found == answer(plain_server, prompt=prompt, **options)
        assert json.loads(found["text"]).keys() == {"a", "b"}
        assert found["finish_reason"] == "stop"


def test_a_prefix_from_the_cache_is_drafted_from_like_a_new_one(server: str, plain_server: str) -> None:
    """F81, F89: the second time the prompt is cached as far as in a stock vLLM, and drafts are as good."""
    prompt = "".join(f"{number} is a number, " for number in range(9))
    gained, cached = [], {}
    for address in (server, plain_server):
        for _ in range(2):
            before = metrics(address).get("foredraft_accepted_tokens_total", 0.0)
            usage = complete(address, prompt=prompt, max_tokens=48).json()["usage"]
            cached[address] = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
            if address == server:
                gained.append(metrics(address)["foredraft_accepted_tokens_total"] - before)
    assert cached[server] == cached[plain_server] > 0
    assert gained[0] == gained[1] > 0


def test_clients_that_leave_give_back_what_they_held(server: str) -> None:
    """F183, F185: no request runs on, no block of the cache stays in use."""
    import httpx

    body = {"model": "toy", "prompt": LOOPING, "temperature": 0, "max_tokens": 200, "stream": True}

    def leave_early(number: int) -> None:
        asked = body | {"prompt": f"{number} {LOOPING}", "ignore_eos": True}
        with httpx.stream("POST", f"{server}/v1/completions", json=asked, timeout=60) as response:
            next(response.iter_lines())

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(leave_early, range(12)))
    deadline = time.monotonic() + 30
    while metrics(server, "vllm:num_requests_running")["vllm:num_requests_running"] > 0:
        assert time.monotonic() < deadline, "requests run on without a client"
        time.sleep(0.2)
    answer(server)
    assert metrics(server, "vllm:kv_cache_usage_perc")["vllm:kv_cache_usage_perc"] == 0
    assert metrics(server)["foredraft_proposer_faults_total"] == 0


def test_counters_are_numbers_that_fit_together(server: str) -> None:
    """F147, F149, F151: never more accepted than drafted, by place too, and no nan."""
    found = metrics(server)
    assert all(value == value for value in found.values())
    assert found["foredraft_accepted_tokens_total"] <= found["foredraft_drafted_tokens_total"]
    for position in range(5):
        place = f'{{position="{position}"}}'
        accepted = found.get(f"foredraft_accepted_per_position_total{place}", 0.0)
        assert accepted <= found.get(f"foredraft_verified_per_position_total{place}", 0.0)
