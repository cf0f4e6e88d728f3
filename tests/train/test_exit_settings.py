"""What ``foredraft train exit`` may be told, and how a folder is held to one kind."""

import json
from pathlib import Path

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.train.kept_settings import check_shared_data, keep_settings
from foredraft.integration.train.settings import DraftSettings, ExitSettings, TrainSettings

TARGET = {"model": "toy", "dtype": "float32", "target_fingerprint": "abc"}


@pytest.mark.parametrize(("num_layers", "exit_layer"), [(2, 1), (12, 1), (24, 2), (30, 2), (32, 2), (60, 4)])
def test_the_exit_layer_follows_from_the_depth(num_layers: int, exit_layer: int) -> None:
    assert ExitSettings().for_target(num_layers).exit_layer == exit_layer
    assert ExitSettings(exit_layer=1).for_target(num_layers).exit_layer == 1


@pytest.mark.parametrize(
    ("init", "first"), [("next", 4), ("last", 28), ("fresh", 4)], ids=["next", "last", "fresh"]
)
def test_the_layers_to_start_from(init: str, first: int) -> None:
    assert ExitSettings(exit_layer=4, layers=2, init=init).for_target(30).first_layer(30) == first


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"exit_layer": 0}, "--exit-layer: "),
        ({"layers": 3}, "--layers: "),
        ({"init": "first"}, "--init: .*'next', 'last' or 'fresh'"),
        ({"form": "plain", "rollout": 2}, "--rollout: needs form states"),
        ({"exit_layers": 2}, "did you mean exit_layer"),
    ],
)
def test_bad_settings_are_refused_by_flag(given: dict[str, object], named: str) -> None:
    with pytest.raises(UserError, match=named):
        ExitSettings(**given)


@pytest.mark.parametrize(
    ("given", "num_layers", "named"),
    [
        ({"exit_layer": 4}, 4, r"--exit-layer: the target has 4 layers, .* after 1 to 3 \(got 4\)"),
        ({"exit_layer": 3, "layers": 2}, 4, "--layers: only 1 of the target's layers follow the exit"),
        ({}, 1, "--exit-layer: the target has only one layer"),
    ],
)
def test_what_the_target_has_not_got_is_refused(
    given: dict[str, object], num_layers: int, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        ExitSettings(**given).for_target(num_layers)


@pytest.mark.parametrize(
    ("first", "then", "named"),
    [
        (DraftSettings(), ExitSettings(), "belongs to `foredraft train draft`"),
        (ExitSettings(), DraftSettings(), "belongs to `foredraft train exit`"),
    ],
)
def test_the_folder_of_the_other_kind_is_refused(
    tmp_path: Path, first: TrainSettings, then: TrainSettings, named: str
) -> None:
    keep_settings(tmp_path, first, TARGET)
    with pytest.raises(UserError, match=f"--out: .* {named}"):
        keep_settings(tmp_path, then, TARGET)


def test_settings_from_before_there_were_kinds_are_a_drafts(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    keep_settings(tmp_path, DraftSettings(), TARGET)
    old = json.loads(path.read_text())
    del old["kind"]
    path.write_text(json.dumps(old))
    keep_settings(tmp_path, DraftSettings(), TARGET)
    with pytest.raises(UserError, match="belongs to `foredraft train draft`"):
        keep_settings(tmp_path, ExitSettings(), TARGET)


@pytest.mark.parametrize(
    ("given", "digests", "named"),
    [
        ({"write_tokens": 7}, ["11"], "--write-tokens"),
        ({"max_response_tokens": 7}, ["11"], "--max-response-tokens"),
        ({"seed": 7}, ["11"], "--seed"),
        ({}, ["12"], "--data"),
    ],
)
def test_runs_that_share_samples_are_held_to_the_same(
    tmp_path: Path, given: dict[str, object], digests: list[str], named: str
) -> None:
    other = tmp_path / "sweep-2"
    other.mkdir()
    keep_settings(other, ExitSettings(data=("a",), exit_layer=2), TARGET, ["11"])
    folders = [tmp_path, other]
    check_shared_data(folders, ExitSettings(data=("a",), exit_layer=3, rollout=2), TARGET, ["11"])
    with pytest.raises(UserError, match=f"{named}: "):
        check_shared_data(folders, ExitSettings(data=("a",), **given), TARGET, digests)
