"""The schema: types, bounds, cross-field checks, and what is said about a bad value."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from foredraft.integration import config as config_module
from foredraft.integration.config import Config, allowed_proposers, leaf_values
from foredraft.integration.errors import UserError


def refusal(**values: Any) -> str:
    with pytest.raises(UserError) as caught:
        Config(**values)
    return str(caught.value)


def test_defaults_are_greedy_ngram() -> None:
    config = Config()
    assert (config.model, config.proposer) == ("smollm2-135m", "ngram")
    assert (config.sampling.temperature, config.sampling.max_tokens) == (0.0, 256)


def test_every_option_is_described() -> None:
    for model in (
        Config,
        *(type(getattr(Config(), name)) for name in ("ngram", "draft", "engine", "sampling")),
    ):
        assert all(field.description for field in model.model_fields.values())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"num_draft_tokens": 33}, ["num_draft_tokens", "32", "33"]),
        ({"num_draft_tokens": 0}, ["num_draft_tokens", "1", "0"]),
        ({"num_draft_tokens": True}, ["num_draft_tokens", "whole number", "True"]),
        ({"num_draft_tokens": "5"}, ["num_draft_tokens", "auto", "'5'"]),
        ({"dtype": "float17"}, ["dtype", "bfloat16", "'float17'"]),
        ({"device": "cuda:x"}, ["device", "cuda:N", "'cuda:x'"]),
        ({"device": "cpu\n"}, ["device", "cuda:N"]),
        ({"verification_rule": "blok"}, ["verification_rule", "'token'", "'blok'"]),
        ({"model": ""}, ["model", "''"]),
        ({"ngram": 5}, ["ngram", "mapping", "5"]),
        ({"ngram": None}, ["ngram", "mapping", "None"]),
        ({"ngram": {"min_n": 9, "max_n": 4}}, ["ngram", "min_n (9)", "max_n (4)"]),
        ({"engine": {"max_num_seqs": 257}}, ["engine.max_num_seqs", "256", "257"]),
        ({"engine": {"max_num_seqs": 2.0}}, ["engine.max_num_seqs", "integer", "2.0"]),
        ({"engine": {"kv_cache_memory_gb": float("nan")}}, ["engine.kv_cache_memory_gb", "nan"]),
        ({"engine": {"kv_cache_memory_gb": float("inf")}}, ["engine.kv_cache_memory_gb", "inf"]),
        ({"sampling": {"temperature": -1}}, ["sampling.temperature", "0", "-1"]),
        ({"sampling": {"top_p": float("nan")}}, ["sampling.top_p", "finite", "nan"]),
        ({"sampling": {"max_tokens": True}}, ["sampling.max_tokens", "integer", "True"]),
        ({"sampling": {"min_tokens": 300}}, ["sampling", "min_tokens (300)", "max_tokens (256)"]),
        ({"sampling": {"logit_bias": {"x": 1.0}}}, ["sampling.logit_bias", "'x'"]),
        ({"dtype": "float16", "device": "cpu"}, ["dtype", "float16", "cpu", "float32"]),
    ],
)
def test_bad_value_is_named_with_what_is_allowed(values: dict[str, Any], named: list[str]) -> None:
    message = refusal(**values)
    assert all(part in message for part in named), message


@pytest.mark.parametrize(
    ("values", "offer"),
    [
        ({"num_draft_token": 3}, "did you mean num_draft_tokens?"),
        ({"ngram": {"minn": 3}}, "did you mean ngram.min_n?"),
        ({"engine": {"max-num-seqs": 3}}, "did you mean engine.max_num_seqs?"),
        ({"temperature": 0.5}, "did you mean sampling.temperature?"),
        ({"disable_by_batch_size": 4}, "known: model, dtype"),
        ({"self": 1}, "known: model, dtype"),
        ({"ngram": {"zzz": 3}}, "known: ngram.min_n, ngram.max_n"),
    ],
)
def test_unknown_key_comes_with_the_nearest(values: dict[str, Any], offer: str) -> None:
    """An option that nothing reads must not be taken silently."""
    message = refusal(**values)
    assert "unknown field" in message
    assert offer in message


def test_every_fault_is_reported() -> None:
    message = refusal(num_draft_tokens=0, sampling={"top_p": 2})
    assert "num_draft_tokens" in message
    assert "sampling.top_p" in message


def test_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().num_draft_tokens = 3  # type: ignore[misc]


def test_section_of_another_proposer_may_be_given() -> None:
    assert Config(proposer="none", ngram={"max_n": 7}).ngram.max_n == 7


def test_leaf_values_cover_the_dump() -> None:
    dump = Config().model_dump()
    flat = {
        f"{n}.{k}" if isinstance(v, dict) else n
        for n, v in dump.items()
        for k in (v if isinstance(v, dict) else [0])
    }
    assert {name for name, _ in leaf_values(Config())} == flat


def test_plugin_names_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint(name, "somewhere:Class", "foredraft.proposers") for name in ("mine", "ngram")]
    monkeypatch.setattr(
        config_module, "entry_points", lambda group: points if group == "foredraft.proposers" else []
    )
    assert allowed_proposers() == ("none", "ngram", "draft", "early_exit", "mine", "auto")
    Config(proposer="mine")


def test_unknown_proposer_is_refused_with_the_nearest() -> None:
    message = refusal(proposer="n-gram")
    assert "none, ngram, draft, early_exit" in message
    assert "did you mean ngram?" in message
