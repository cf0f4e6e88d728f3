"""Files and flags: which goes before which, where values came from, and all spellings alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foredraft.integration.config import Config
from foredraft.integration.config_sources import FLAG_FIELDS, flag_name, load_config
from foredraft.integration.config_text import parse_yaml
from foredraft.integration.errors import UserError


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(text: str | bytes, name: str = "my.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(path: Path | None, overrides: dict[str, Any] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load_config(path, overrides or {})
    return str(caught.value)


def test_flag_goes_before_file_before_default(written: Any) -> None:
    path = written("num_draft_tokens: 3\nngram: {min_n: 3, max_n: 5}\n")
    loaded = load_config(path, {"num_draft_tokens": 7, "ngram.max_n": 9})
    assert (loaded.config.num_draft_tokens, loaded.config.ngram.min_n, loaded.config.ngram.max_n) == (7, 3, 9)
    assert loaded.origins["num_draft_tokens"] == "flag --num-draft-tokens"
    assert loaded.origins["ngram.max_n"] == "flag --set"
    assert loaded.origins["ngram.min_n"] == "file my.yaml"
    assert loaded.origins["ngram.shared_store_tokens"] == "default"


def test_nothing_given_is_the_default() -> None:
    loaded = load_config(None, {})
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}


VALUES = {
    "proposer": "none",
    "sampling": {"ignore_eos": True, "logit_bias": {"5": 0.001}, "stop": ["é", "😀"], "seed": None},
    "engine": {"kv_cache_memory_gb": 2},
}


def test_every_spelling_gives_the_same(written: Any) -> None:
    """An option must not depend on whether it was spelt for YAML, JSON, Python or the shell."""
    yaml_text = (
        "proposer: none\nsampling: {ignore_eos: true, logit_bias: {5: 1e-3}, stop: [é, 😀], seed: null}\n"
    )
    sources = [
        load_config(written(yaml_text + "engine: {kv_cache_memory_gb: 2.0}\n"), {}),
        load_config(written(json.dumps(VALUES, indent="\t"), "my.json"), {}),
        load_config(None, VALUES),
        load_config(None, {name: parse_yaml(str(value), name) for name, value in VALUES.items()}),
        load_config(None, {name: parse_yaml(json.dumps(value), name) for name, value in VALUES.items()}),
    ]
    assert [source.config for source in sources] == [Config(**VALUES)] * 5
    assert sources[0].config.sampling.logit_bias == {5: 0.001}


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("None", None), ("1e-3", 1e-3)])
def test_yaml_json_and_python_words(text: str, value: Any) -> None:
    assert parse_yaml(text, "test") == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("# only this\n", "is empty"),
        ("- a\n", "needs a mapping"),
        ("word", "needs a mapping"),
        ("model: x\nngram: [", "line 2"),
        ("model: x\nmodel: y\n", "line 2: model is given twice, first on line 1"),
        ("ngram:\n  min_n: 1\n  min_n: 2\n", "line 3: min_n is given twice"),
        ("model: a: b\n", "line 1"),
        ("model: !!python/object/apply:os.getcwd []\n", "line 1"),
        ("5: x\n", "option names are texts (got 5)"),
        ("ngram: {5: x}\n", "option names are texts (got 5)"),
        ("ngram.min_n: 3\n", "write it as a section: ngram: {min_n: ...}"),
        ("model: 2024-99-99\n", "not YAML"),
        ('model: "\\ud83d"', "not YAML"),
        (b"model: \xff\xff\n", "not YAML"),
        ("[" * 5000, "nested too deeply"),
        (
            "num_draft_tokens: 33\n",
            "num_draft_tokens: should be auto or a whole number from 1 to 32, or null (got 33)",
        ),
        ("sampling: {temperature: .nan}\n", "sampling.temperature"),
        ("typo: 1\n", "typo: unknown field"),
    ],
)
def test_bad_yaml_file_is_named_with_the_fault(written: Any, text: str | bytes, said: str) -> None:
    message = refusal(written(text))
    assert message.startswith("file my.yaml")
    assert said in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model": "x",\n', "line 2"),
        ('{"model": "x", "model": "y"}', "model is given twice"),
        ('{"sampling": {"top_p": NaN}}', "sampling.top_p"),
        ("", "line 1"),
    ],
)
def test_bad_json_file_is_named_with_the_fault(written: Any, text: str, said: str) -> None:
    message = refusal(written(text, "my.json"))
    assert message.startswith("file my.json")
    assert said in message


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    assert "absent.yaml: No such file" in refusal(tmp_path / "absent.yaml")
    assert "Is a directory" in refusal(tmp_path)


def test_fault_names_where_the_value_came_from(written: Any) -> None:
    path = written("num_draft_tokens: 33\nngram: {min_n: 6}\n")
    message = refusal(path, {"sampling.top_p": 2.0, "ngram.max_n": 5, "engine": 3})
    lines = {
        line.partition(": ")[2].partition(":")[0]: line.partition(":")[0] for line in message.splitlines()
    }
    assert lines == {
        "num_draft_tokens": "file my.yaml",
        "ngram": "file my.yaml, flag --set",
        "sampling.top_p": "flag --top-p",
        "engine": "flag --set",
    }


def test_flag_on_a_section_the_file_spoils(written: Any) -> None:
    assert "ngram: needs a mapping" in refusal(written("ngram: 5\n"), {"ngram.min_n": 2})


def test_flags_are_named_after_options() -> None:
    assert flag_name("sampling.top_p") == "--top-p"
    assert len({flag_name(option) for option in FLAG_FIELDS}) == len(FLAG_FIELDS)
