"""Workload files: the built-in ones, the user's own, and what is said about broken ones."""

import json
import os
from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.workloads import WorkloadPrompt, load_workload, workload_names

NUM_PROMPTS = {"chat": 16, "code_edit": 8, "copy_heavy": 8, "long_context": 4, "summarize_quotes": 8}


def test_the_built_in_names() -> None:
    assert workload_names() == sorted(NUM_PROMPTS)


@pytest.mark.parametrize("name", sorted(NUM_PROMPTS))
def test_built_in_workloads_are_complete(name: str) -> None:
    prompts = load_workload(name)
    assert len(prompts) == NUM_PROMPTS[name]
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert len({prompt.turns for prompt in prompts}) == len(prompts)


def test_categories_and_limit_select_in_order() -> None:
    chat = load_workload("chat")
    assert {prompt.category for prompt in chat} == {"writing", "roleplay", "reasoning", "qa"}
    wanted = [prompt for prompt in chat if prompt.category in ("qa", "writing")]
    assert load_workload("chat", categories=["qa", "writing"]) == wanted
    assert load_workload("chat", categories=["qa", "writing"], limit=3) == wanted[:3]
    assert load_workload("chat", limit=99) == chat


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"question_id": 7, "category": "rag", "turns": ["one\u2028line", "two"], "other": 1}\n\n'
        '{"turns": ["no id"]}\n',
        encoding="utf-8",
    )
    expected = [WorkloadPrompt("7", "rag", ("one\u2028line", "two")), WorkloadPrompt("3", "mine", ("no id",))]
    assert load_workload(path) == expected
    assert load_workload(str(path)) == expected


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"turns": ["a"]}', encoding="utf-8-sig")
    assert load_workload(path) == [WorkloadPrompt("1", "mine", ("a",))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{turns: 1}", "not JSON"),
        pytest.param('{"turns": ' + "1" * 5000 + "}", "not JSON: Exceeds the limit", id="digits"),
        pytest.param("[" * 100_000, "nested too deeply", id="nested"),
        ('["a"]', "must be a JSON object with turns, got list"),
        ('{"prompt": "a", "id": 1}', "no turns; the fields are prompt, id"),
        ('{"turns": "a"}', "turns must be a list of texts, got 'a'"),
        ('{"turns": ["a", 3]}', "turns must be a list of texts"),
        ('{"turns": []}', "at least one text"),
        ('{"turns": ["a", " "]}', "no empty one"),
        (r'{"turns": ["a", "b\ud800"]}', "a lone surrogate, which is no character, in 'b"),
        (r'{"turns": ["a"], "id": "\udc00"}', "a lone surrogate"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps({"turns": ["fine"]}) + "\n" + line + "\n")
    with pytest.raises(UserError, match=r"mine\.jsonl, line 2: .*" + message):
        load_workload(path)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"mine\.jsonl: empty"):
        load_workload(path)


def test_a_missing_file_lists_the_built_in_names() -> None:
    with pytest.raises(UserError, match=r"'chatt': no such file.*chat, code_edit, copy_heavy, long_context"):
        load_workload("chatt")


def test_unreadable_files_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_workload(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(UserError, match="cannot be read"):
        load_workload(tmp_path / "binary")


def test_an_unknown_category_and_a_bad_limit_are_refused() -> None:
    with pytest.raises(UserError, match="no category 'rag'; there are qa, reasoning, roleplay, writing"):
        load_workload("chat", categories=["qa", "rag"])
    with pytest.raises(UserError, match="limit must be 1 or more, got 0"):
        load_workload("chat", limit=0)


@pytest.mark.shared_data
@pytest.mark.skipif(
    not os.environ.get("FOREDRAFT_SHARED_DATA"), reason="FOREDRAFT_SHARED_DATA names no prompt file"
)
def test_the_spec_bench_format_loads() -> None:
    path = os.environ["FOREDRAFT_SHARED_DATA"]
    prompts = load_workload(path)
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").split("\n") if line]
    assert [(prompt.id, list(prompt.turns)) for prompt in prompts] == [
        (str(row["question_id"]), row["turns"]) for row in rows
    ]
