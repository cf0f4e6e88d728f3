import json
from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.train.kept_settings import keep_settings
from foredraft.integration.train.settings import DraftSettings

TARGET = {"model": "toy", "dtype": "float32", "target_fingerprint": "abc"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"learning_rate": 0.0}, "--learning-rate: "),
        ({"learning_rate": float("nan")}, "--learning-rate: "),
        ({"form": "tree"}, "--form: "),
        ({"batch_tokens": 100}, "--batch-tokens: "),
        ({"layer": 2}, "did you mean layers"),
        ({"form": "plain", "rollout": 2}, "--rollout: needs form states"),
        ({"form": "plain", "state_loss": 0.1}, "--state-loss: needs form states"),
    ],
)
def test_bad_settings_are_refused_by_flag(given: dict[str, object], named: str) -> None:
    with pytest.raises(UserError) as caught:
        DraftSettings(**given)
    assert named in str(caught.value)


def test_a_rerun_is_held_to_the_first_settings(tmp_path: Path) -> None:
    settings = DraftSettings(data=("a.jsonl",), learning_rate=0.002)
    keep_settings(tmp_path, settings, TARGET)
    keep_settings(tmp_path, settings, TARGET)
    with pytest.raises(UserError, match=r"--learning-rate: .* begun with 0\.002, now it is 0\.001"):
        keep_settings(tmp_path, settings.model_copy(update={"learning_rate": 0.001}), TARGET)
    with pytest.raises(UserError, match="--model: its weights changed since this run began"):
        keep_settings(tmp_path, settings, TARGET | {"target_fingerprint": "abd"})


def test_more_training_may_be_asked_for_but_not_less(tmp_path: Path) -> None:
    keep_settings(tmp_path, DraftSettings(train_tokens=1000), TARGET)
    keep_settings(tmp_path, DraftSettings(train_tokens=2000), TARGET)
    with pytest.raises(UserError, match=r"--train-tokens: .* begun with 2000, now it is 1000"):
        keep_settings(tmp_path, DraftSettings(train_tokens=1000), TARGET)


def test_the_same_model_and_data_may_be_spelled_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keep_settings(tmp_path, DraftSettings(data=("a.jsonl",)), TARGET, ["11"])
    other = DraftSettings(data=("../moved/b.jsonl",))
    keep_settings(tmp_path, other, TARGET | {"model": "copies/toy"}, ["11"])
    with pytest.raises(UserError, match="--model: its weights changed"):
        keep_settings(tmp_path, other, TARGET | {"model": "./toy", "target_fingerprint": "abd"}, ["11"])
    with pytest.raises(UserError, match=r"--model: .* was begun with 'toy', now it is 'other'"):
        keep_settings(tmp_path, other, TARGET | {"model": "other", "target_fingerprint": "abd"}, ["11"])
    with pytest.raises(UserError, match=r"--layers: \. was begun with 1, now it is 2"):
        keep_settings(Path(), other.model_copy(update={"layers": 2}), TARGET, ["11"])


def test_data_with_other_content_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keep_settings(tmp_path, DraftSettings(data=("a.jsonl", "b.jsonl")), TARGET, ["11", "22"])
    with pytest.raises(UserError, match=r"--data: \./b\.jsonl changed since the run"):
        keep_settings(tmp_path, DraftSettings(data=("a.jsonl", "./b.jsonl")), TARGET, ["11", "23"])
    with pytest.raises(UserError, match=r"--data: .* was begun with \['a\.jsonl', 'b\.jsonl'\]"):
        keep_settings(tmp_path, DraftSettings(data=("a.jsonl", "c.jsonl")), TARGET, ["11", "23"])
    with pytest.raises(UserError, match=r"--data: .* was begun with"):
        keep_settings(tmp_path, DraftSettings(data=("a.jsonl",)), TARGET, ["11"])


def test_settings_from_before_digests_were_kept_are_held_to_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "settings.json"
    keep_settings(tmp_path, DraftSettings(data=("a.jsonl",)), TARGET, ["11"])
    old = json.loads(path.read_text())
    del old["data_sha256"]
    path.write_text(json.dumps(old))
    keep_settings(tmp_path, DraftSettings(data=("./a.jsonl",)), TARGET, ["12"])
    with pytest.raises(UserError, match=r"--data: .* was begun with"):
        keep_settings(tmp_path, DraftSettings(data=("b.jsonl",)), TARGET, ["12"])


@pytest.mark.parametrize("content", ["[]", '{"editor.tabSize": 4}'])
def test_settings_of_something_else_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(UserError, match=r"settings\.json is not of a training"):
        keep_settings(tmp_path, DraftSettings(), TARGET)


@pytest.mark.parametrize("content", ["{", "[" * 100_000], ids=["cut", "nested"])
def test_settings_that_cannot_be_read_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(UserError, match="cannot be read"):
        keep_settings(tmp_path, DraftSettings(), TARGET)
