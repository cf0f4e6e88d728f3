"""Requests from logs: what is taken, what is counted, and that no text survives where none may."""

import json
from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.traffic.command import traffic
from foredraft.integration.traffic.convert import UNKNOWN, convert
from foredraft.integration.traffic.json_log import NOT_TEXT
from foredraft.integration.traffic.outcome import BAD_VALUE
from foredraft.integration.traffic.records import Message, TrafficRecord, read_traffic
from foredraft.integration.traffic.vllm_log import NO_GENERATION, NO_PROMPT

PREFIX = "(APIServer pid=7) {level} 11-30 10:00:{second} [request_logger.py:60] "
PARAMS = (
    "SamplingParams(n=1, temperature={temperature}, top_p=1.0, stop={stop}, max_tokens={max_tokens}, seed=0)"
)


def info(second: str, text: str) -> str:
    return PREFIX.format(level="INFO", second=second) + text


def details(name: str, prompt: str | None, ids: str = "[1, 2, 3]") -> str:
    text = f"Request {name} details: prompt: {prompt!r}, prompt_token_ids: {ids}, prompt_embeds shape: None."
    return PREFIX.format(level="DEBUG", second="00") + text


def received(name: str, second: str = "01", stop: str = "[]", max_tokens: int = 16) -> str:
    params = PARAMS.format(temperature=0.7, stop=stop, max_tokens=max_tokens)
    return info(second, f"Received request {name}: params: {params}, lora_request: None.")


def test_the_present_form_of_vllm() -> None:
    """Two requests whose lines are mixed; the second has a prompt that looks like the end of one."""
    tricky = 'it\'s "quoted", prompt_token_ids: [9], params: SamplingParams(max_tokens=1)\nnext\u2028line'
    found = convert(
        [
            details("cmpl-1", "hello"),
            details("chatcmpl-2", tricky, "[1, 2, 3, 4]"),
            received("cmpl-1", "05"),
            received("chatcmpl-2", "07", stop="['max_tokens=3', \"it's\"]", max_tokens=20),
            info("08", "Generated response cmpl-1: output: 'x', finish_reason: stop"),
            'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK',
        ],
        "log",
        lengths_only=False,
    )
    assert found.records == [
        TrafficRecord(prompt="hello", prompt_tokens=3, max_tokens=16, temperature=0.7, arrival_s=0.0),
        TrafficRecord(prompt=tricky, prompt_tokens=4, max_tokens=20, temperature=0.7, arrival_s=2.0),
    ]
    assert found.left_out == {UNKNOWN: 2}


def test_the_older_form_of_vllm() -> None:
    params = PARAMS.format(temperature=1.0, stop="[]", max_tokens=9)
    tokens = "prompt_token_ids: [5, 6], lora_request: None"
    line = f"Received request cmpl-1: prompt: 'a, b', params: {params}, {tokens}"
    found = convert([info("01", line)], "log", lengths_only=False)
    assert found.records == [
        TrafficRecord(prompt="a, b", prompt_tokens=2, max_tokens=9, temperature=1.0, arrival_s=0.0)
    ]


def test_a_request_without_prompt_is_counted_and_one_with_ids_alone_is_kept() -> None:
    pooling = info("03", "Received request embd-1: params: PoolingParams(task=embed), lora_request: None.")
    lines = [received("cmpl-1"), details("cmpl-2", None), received("cmpl-2"), pooling]
    found = convert(lines, "log", lengths_only=False)
    assert [(record.prompt, record.prompt_tokens) for record in found.records] == [(None, 3)]
    assert found.left_out == {NO_PROMPT: 1, NO_GENERATION: 1}


def test_colours_and_the_turn_of_a_year() -> None:
    lines = [
        details("a", "x"),
        received("a").replace("11-30 10:00:01", "12-31 23:59:58").replace("INFO", "\x1b[32mINFO\x1b[0m"),
        details("b", "y"),
        received("b").replace("11-30 10:00:01", "01-01 00:00:03"),
    ]
    found = convert(lines, "log", lengths_only=False)
    assert [record.arrival_s for record in found.records] == [0.0, 5.0]


def test_openai_records_bare_and_wrapped() -> None:
    chat = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 5}
    wrapped = {
        "custom_id": "1",
        "timestamp": "2025-01-01T00:00:02Z",
        "body": {"prompt": ["go on"], "max_completion_tokens": 7, "temperature": 0},
        "response": {"usage": {"prompt_tokens": 11}},
    }
    lines = [json.dumps(wrapped), json.dumps(chat | {"created": 1735689600})]
    found = convert(lines, "log", lengths_only=False)
    assert found.records == [
        TrafficRecord(messages=(Message(role="user", content="hi"),), max_tokens=5, arrival_s=0.0),
        TrafficRecord(prompt="go on", prompt_tokens=11, max_tokens=7, temperature=0.0, arrival_s=2.0),
    ]


def test_what_is_no_text_or_no_request_is_counted() -> None:
    image = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}
    lines = ["{broken", '{"event": "start"}', json.dumps(image), "hello", "", '{"prompt": "x"}']
    found = convert(lines, "log", lengths_only=False)
    assert len(found.records) == 1
    assert found.left_out == {UNKNOWN: 3, NOT_TEXT: 1}


def test_arrivals_of_some_requests_only_are_dropped_and_told() -> None:
    lines = ['{"prompt": "x", "timestamp": 5}', '{"prompt": "y"}']
    found = convert(lines, "log", lengths_only=False)
    assert [record.arrival_s for record in found.records] == [None, None]
    assert found.lost_arrivals == 1


def test_a_log_without_requests_is_refused_and_says_what_is_there() -> None:
    with pytest.raises(UserError, match=r"no request was found .*1 lines: no request in a form"):
        convert(["hello"], "log", lengths_only=False)


def test_lengths_only_leaves_nothing_of_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "server.log", tmp_path / "traffic.jsonl"
    chat = {"messages": [{"role": "SECRETROLE", "content": "SECRETCHAT" * 4}], "user": "SECRETUSER"}
    log.write_text(
        "\n".join([details("SECRETID", "SECRETPROMPT"), received("SECRETID"), json.dumps(chat), "SECRETLINE"])
    )
    traffic(log, out, lengths_only=True)
    written = out.read_text()
    assert "SECRET" not in written.upper()
    assert "SECRET" not in capsys.readouterr().err
    keys = {key for line in written.splitlines() for key in json.loads(line)}
    assert keys == {"prompt_tokens", "max_tokens", "temperature"}
    assert sorted(record.prompt_tokens or 0 for record in read_traffic(out)) == [3, 10]


def test_what_was_left_out_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "server.log", tmp_path / "traffic.jsonl"
    log.write_text('{"prompt": "x", "timestamp": 5}\n{"prompt": "y"}\nhello\n')
    traffic(log, out, lengths_only=True)
    told = capsys.readouterr().err
    assert "2 requests written" in told
    assert "left out: 1 lines: no request in a form that is known" in told
    assert "2 prompts have no count of tokens" in told
    assert "only 1 of 2 requests tell their time" in told


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        traffic(tmp_path / "none.log", tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    "bad",
    [
        r'{"messages": [{"role": "user", "content": "a\ud800"}]}',
        r'{"prompt": "a\ud800"}',
        '{"prompt": "a", "timestamp": 1%s}' % ("0" * 400),
        '{"prompt": "a", "timestamp": -1%s}' % ("0" * 400),
        received("cmpl-1", max_tokens=0),
        received("cmpl-2"),
    ],
)
def test_a_bad_value_costs_its_line_not_the_log(tmp_path: Path, bad: str) -> None:
    log, out = tmp_path / "server.log", tmp_path / "traffic.jsonl"
    before = [details("cmpl-1", "x"), details("cmpl-2", "y\ud800")]
    log.write_text("\n".join([*before, bad, '{"prompt": "good"}']))
    found = convert([*before, bad, '{"prompt": "good"}'], "log", lengths_only=False)
    assert found.left_out == {BAD_VALUE: 1}
    traffic(log, out)
    assert [record.prompt for record in read_traffic(out)] == ["good"]


def test_the_log_is_not_overwritten(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text('{"prompt": "x"}\n')
    (tmp_path / "link.log").symlink_to(log)
    with pytest.raises(UserError, match=r"--out: .*is the log itself"):
        traffic(log, tmp_path / "link.log")
    assert log.read_text() == '{"prompt": "x"}\n'
