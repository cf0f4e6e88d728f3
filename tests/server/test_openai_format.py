"""Answers are in OpenAI's form, say what the engine says, and are the same streamed or whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from letters import TEXT
from openai_server import client_of, events, joined, letters_engine, text_engine
from toys import byte_tokenizer

from foredraft.integration.engine import Engine
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.server.settings import ServerSettings

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hello"}]


def answer(path: str, engine: Engine | None = None, settings: Any = None, **asked: Any) -> Any:
    """The response to one request, greedy unless said."""

    async def run() -> Any:
        more = {} if settings is None else {"settings": settings}
        async with client_of(engine or letters_engine(), **more) as client:
            body = json.dumps({"temperature": 0, "max_tokens": 12} | asked)  # in ASCII, whatever is asked
            return await client.post(path, content=body, headers={"Content-Type": "application/json"})

    return asyncio.run(run())


def expected(prompt: Any, **options: Any) -> Any:
    params = SamplingParams(**({"temperature": 0, "max_tokens": 12} | options))
    return letters_engine().generate([prompt], params)[0]


def test_a_completion_is_the_engines() -> None:
    got = answer(COMPLETE, prompt="abc", return_token_ids=True).json()
    output = expected("abc")
    assert got["object"] == "text_completion"
    assert got["model"] == "toy"
    choice = got["choices"][0]
    assert choice["text"] == output.outputs[0].text
    assert choice["token_ids"] == output.outputs[0].token_ids
    assert choice["prompt_token_ids"] == output.prompt_token_ids
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "length", None)
    assert got["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}


def test_a_chat_is_the_engines_answer_to_the_template() -> None:
    got = answer(CHAT, messages=MESSAGES).json()
    assert got["object"] == "chat.completion"
    message = got["choices"][0]["message"]
    assert message == {"role": "assistant", "content": expected("user:hello;").outputs[0].text}


@pytest.mark.parametrize(
    "asked",
    [
        {"path": COMPLETE, "prompt": "abc"},
        {"path": COMPLETE, "prompt": "abc", "logprobs": 2, "n": 2, "temperature": 1, "seed": 3},
        {"path": COMPLETE, "prompt": ["abc", [100, 101], "z"], "return_token_ids": True},
        {"path": COMPLETE, "prompt": "abc", "stop": ["a", "t"], "include_stop_str_in_output": True},
        {"path": CHAT, "messages": MESSAGES},
        {"path": CHAT, "messages": MESSAGES, "logprobs": True, "top_logprobs": 2, "n": 2},
        {"path": CHAT, "messages": MESSAGES, "stop": "xl"},
    ],
)
def test_a_stream_adds_up_to_the_whole(asked: dict[str, Any]) -> None:
    whole = answer(**asked).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    pieces = events(answer(**(asked | options)).text)
    *pieces, last = pieces
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert all(piece["usage"] is None for piece in pieces)
    for choice in whole["choices"]:
        index = choice["index"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert joined(pieces, index) == text
        mine = [one for piece in pieces for one in piece["choices"] if one["index"] == index]
        assert added_logprobs(mine) == added_logprobs([choice])
        assert [one["finish_reason"] for one in mine if one["finish_reason"]] == [choice["finish_reason"]]
        assert mine[-1]["stop_reason"] == choice["stop_reason"]
        ids = [token for one in mine for token in one.get("token_ids", [])]
        assert ids == choice.get("token_ids", [])


def added_logprobs(choices: list[dict[str, Any]]) -> Mapping[str, list[Any]]:
    """The log-probabilities of pieces of a choice in a row."""
    sums: dict[str, list[Any]] = {}
    for choice in choices:
        for name, values in (choice["logprobs"] or {}).items():
            sums.setdefault(name, []).extend(values)
    return sums


def test_letters_that_are_split_across_tokens_arrive_whole() -> None:
    pieces = events(answer(COMPLETE, text_engine(), prompt="a", max_tokens=40, stream=True).text)
    assert "�" not in "".join(one["choices"][0]["text"] for one in pieces)
    assert joined(pieces).startswith(TEXT[1:])


def test_a_chat_that_streams_says_first_who_speaks() -> None:
    pieces = events(answer(CHAT, messages=MESSAGES, stream=True, n=2).text)
    opening = {"role": "assistant", "content": ""}
    assert [piece["choices"][0]["delta"] for piece in pieces[:2]] == [opening] * 2
    assert {piece["object"] for piece in pieces} == {"chat.completion.chunk"}
    assert len({piece["id"] for piece in pieces}) == 1
    assert all("usage" not in piece for piece in pieces)


def test_logprobs_are_the_engines() -> None:
    output = expected("abc", logprobs=2).outputs[0]
    of_completion = answer(COMPLETE, prompt="abc", logprobs=2).json()["choices"][0]["logprobs"]
    wanted = [entry[token].logprob for token, entry in zip(output.token_ids, output.logprobs, strict=True)]
    assert of_completion["token_logprobs"] == pytest.approx(wanted)
    assert "".join(of_completion["tokens"]) == output.text
    assert of_completion["text_offset"] == list(range(12))
    assert all(len(top) == 2 for top in of_completion["top_logprobs"])
    of_chat = answer(CHAT, messages=MESSAGES, logprobs=True, top_logprobs=3).json()["choices"][0]["logprobs"]
    first = of_chat["content"][0]
    assert len(first["top_logprobs"]) == 3
    assert first["top_logprobs"][0]["logprob"] == first["logprob"]  # greedy
    assert bytes(first["bytes"]).decode() == first["token"]


def test_what_a_request_leaves_out_is_openais_or_the_configurations() -> None:
    settings = ServerSettings(("toy",), sampling={"temperature": 0.0, "max_tokens": 5})
    body = {"temperature": None, "max_tokens": None, "prompt": "abc"}
    text = answer(COMPLETE, settings=settings, **body).json()["choices"][0]["text"]
    assert text == expected("abc", max_tokens=5).outputs[0].text
    assert answer(COMPLETE, **body).json()["usage"]["completion_tokens"] == 16
    chat = answer(CHAT, messages=MESSAGES, max_tokens=None).json()
    assert chat["usage"]["total_tokens"] == 128  # the room there is


def test_every_control_of_ours_is_taken() -> None:
    controls = {
        "top_k": 3,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "logit_bias": {"97": 5.0},
        "bad_words": ["q"],
        "allowed_token_ids": list(range(97, 110)),
        "ignore_eos": True,
        "min_tokens": 2,
        "stop_token_ids": [5],
        "skip_special_tokens": False,
        "user": "someone",
        "store": False,
    }
    text = answer(COMPLETE, prompt="abc", **controls).json()["choices"][0]["text"]
    named = {name: value for name, value in controls.items() if name not in ("user", "store")}
    assert text == expected("abc", **named).outputs[0].text


def test_a_model_without_tokenizer_serves_token_ids() -> None:
    choice = answer(COMPLETE, letters_engine(tokenizer=None), prompt=[97, 98], return_token_ids=True).json()
    assert len(choice["choices"][0]["token_ids"]) == 12
    assert answer(CHAT, letters_engine(tokenizer=None), messages=MESSAGES).status_code == 400


@pytest.mark.parametrize(
    ("path", "asked", "field"),
    [
        (COMPLETE, {"prompt": "abc", "temperature": -1}, "temperature"),
        (COMPLETE, {"prompt": "abc", "temprature": 0}, "temprature"),
        (COMPLETE, {"prompt": 3}, "prompt"),
        (COMPLETE, {"prompt": []}, "prompt"),
        (COMPLETE, {"prompt": ""}, "prompt"),
        (COMPLETE, {}, "prompt"),
        (COMPLETE, {"prompt": [5000]}, "prompt"),
        (COMPLETE, {"prompt": "a" * 200}, "prompt"),
        (COMPLETE, {"prompt": "a\ud800"}, "prompt"),
        (COMPLETE, {"prompt": "a", "stop": ["\udfff"]}, "stop"),
        (COMPLETE, {"prompt": "a", "repetition_penalty": 1e-300}, "repetition_penalty"),
        (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        (COMPLETE, {"prompt": "a", "suffix": "b"}, "suffix"),
        (COMPLETE, {"prompt": "a", "echo": True}, "echo"),
        (COMPLETE, {"prompt": "a", "logprobs": 50}, "logprobs"),
        (COMPLETE, {"prompt": "a", "allowed_token_ids": [9999]}, "allowed_token_ids"),
        (COMPLETE, {"prompt": "a", "stream_options": {"include": 1}}, "stream_options.include"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": [{"role": "user"}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": "a" * 200}]}, "messages"),
        (CHAT, {"messages": MESSAGES, "tools": [{"type": "function"}]}, "tools"),
        (CHAT, {"messages": MESSAGES, "response_format": {"type": "json_object"}}, "response_format"),
        (CHAT, {"messages": MESSAGES, "logprobs": 3}, "logprobs"),
        (CHAT, {"messages": MESSAGES, "top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_a_bad_request_is_told_its_field(path: str, asked: dict[str, Any], field: str) -> None:
    for stream in (False, True):
        got = answer(path, stream=stream, **asked)
        assert got.status_code == 400, got.text
        error = got.json()["error"]
        assert error["param"] == field
        assert error["type"] == "invalid_request_error"
        assert field.rpartition(".")[2] in error["message"]


def test_what_is_no_json_or_no_route_is_refused_in_the_same_form() -> None:
    async def run() -> list[tuple[int, Any]]:
        async with client_of(letters_engine()) as client:
            got = [
                await client.post(COMPLETE, content=b"{not json"),
                await client.post(COMPLETE, content=b"[]"),
                await client.get("/v2/nothing"),
                await client.get(COMPLETE),
                await client.post(COMPLETE, json={"prompt": "a", "model": "another"}),
            ]
            return [(one.status_code, one.json()["error"]) for one in got]

    answers = asyncio.run(run())
    assert [status for status, _ in answers] == [400, 400, 404, 405, 404]
    assert answers[-1][1]["code"] == "model_not_found"
    assert all(error["message"] and error["type"] for _, error in answers)


def test_a_top_p_too_small_for_float32_is_greedy() -> None:
    got = answer(COMPLETE, prompt="abc", temperature=1, top_p=1e-300)
    assert got.json()["choices"][0]["text"] == expected("abc").outputs[0].text


def test_controls_that_forbid_every_token_are_the_clients_fault() -> None:
    (token,) = byte_tokenizer().encode("b")
    got = answer(COMPLETE, prompt="a", allowed_token_ids=[token], bad_words=["b"])
    assert got.status_code == 400
    assert "no token is possible" in got.json()["error"]["message"]
