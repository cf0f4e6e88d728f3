from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.train.settings import TrainSettings, keep_settings

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
        TrainSettings(**given)
    assert named in str(caught.value)


def test_a_rerun_is_held_to_the_first_settings(tmp_path: Path) -> None:
    settings = TrainSettings(data=("a.jsonl",), learning_rate=0.002)
    keep_settings(tmp_path, settings, TARGET)
    keep_settings(tmp_path, settings, TARGET)
    with pytest.raises(UserError, match=r"--learning-rate: .* begun with 0\.002, now it is 0\.001"):
        keep_settings(tmp_path, settings.model_copy(update={"learning_rate": 0.001}), TARGET)
    with pytest.raises(UserError, match=r"--target-fingerprint: .* begun with 'abc', now it is 'abd'"):
        keep_settings(tmp_path, settings, TARGET | {"target_fingerprint": "abd"})


def test_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        keep_settings(tmp_path, TrainSettings(), TARGET)
