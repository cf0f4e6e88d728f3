"""What the user may ask of the plugin, and what is refused by name. Needs no vLLM."""

import json
from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.vllm import options


def test_nobody_asked() -> None:
    assert options.asked_for({}) is None
    assert options.asked_for({"something_else": {"proposer": "ngram"}}) is None
    assert options.asked_for({"foredraft": {"proposer": "none"}}) is None


def test_asked_by_additional_config() -> None:
    config = options.asked_for({"foredraft": {"ngram": {"min_n": 2}, "num_draft_tokens": 5}})
    assert config is not None
    assert (config.proposer, config.ngram.min_n, config.num_draft_tokens) == ("ngram", 2, 5)


def test_asked_by_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is that of the embedded engine: what vLLM decides by itself may stand in it."""
    path = tmp_path / "ngram.yaml"
    path.write_text("model: smollm2-135m\nproposer: ngram\nngram: {max_n: 7}\n")
    monkeypatch.setenv("FOREDRAFT_CONFIG", str(path))
    config = options.asked_for({})
    assert config is not None
    assert config.ngram.max_n == 7
    assert options.asked_for({"foredraft": {"proposer": "none"}}) is None, "what the engine says goes first"


def test_it_travels_through_json() -> None:
    """vLLM hashes ``additional_config`` as JSON."""
    config = options.asked_for({"foredraft": {"verification_rule": "token", "ngram": {"draft_growth": 0}}})
    assert config is not None
    travelled = json.loads(json.dumps(options.to_mapping(config)))
    assert options.asked_for({"foredraft": travelled}) == config


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (True, "needs a mapping"),
        ({"proposr": "ngram"}, "did you mean proposer"),
        ({"model": "smollm2-135m"}, "model: leave it out"),
        ({"num_draft_tokens": 0}, "num_draft_tokens"),
        ({"ngram": {"min_n": 9, "max_n": 2}}, "min_n"),
    ],
)
def test_refusals_name_the_field(given: object, named: str) -> None:
    with pytest.raises(UserError, match=named):
        options.asked_for({"foredraft": given})
