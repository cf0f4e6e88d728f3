"""``foredraft train exit --sweep``: which layer pays best, and that nothing is made twice."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.train import run
from foredraft.integration.train.run import train
from foredraft.integration.train.settings import ExitSettings
from foredraft.integration.train.sweep import SweepRow, best_row, parse_layers, run_sweep
from foredraft.integration.train.sweep_table import conclusion, print_sweep

ROWS = [
    SweepRow(1, 1000, 0.2, 0.05, 1, 1.01),
    SweepRow(2, 1000, 0.3, 0.1, 2, 1.21),
    SweepRow(3, 1000, 0.4, 0.3, 1, 1.1),
    SweepRow(4, 1000, 0.5, None, None, None),
]


def settings(**given: Any) -> ExitSettings:
    base = {"write_tokens": 1, "batch_tokens": 512, "head_tokens": 200, "train_tokens": 700}
    return ExitSettings(**(base | given))


def test_layers_are_read_in_any_order() -> None:
    assert parse_layers("4, 1,2,2") == [1, 2, 4]
    for text in ("", "a", "1,,2", "0,1", "1.5"):
        with pytest.raises(UserError, match=f"--sweep: needs exit layers such as 1,2,4 .got '{text}'"):
            parse_layers(text)


def test_the_highest_speedup_is_best_if_it_is_one() -> None:
    assert best_row(ROWS) == ROWS[1]
    assert "after layer 2 pays best" in conclusion(ROWS)
    assert "--exit-layer 2 in place of --sweep" in conclusion(ROWS)
    assert "no other layer was tried" in conclusion([ROWS[1]])
    assert best_row([ROWS[0], ROWS[3]]) is None
    assert "No layer pays yet" in conclusion([ROWS[0], ROWS[3]])


def test_the_table_has_a_line_per_layer() -> None:
    text = StringIO()
    print_sweep(ROWS, Console(file=text, width=80))
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert ["2", "1000", "0.300", "0.100", "2", "1.21x"] in lines
    assert ["4", "1000", "0.500", "not", "measured", "-", "-"] in lines


def test_a_sweep_shares_data_resumes_and_leads_to_a_training(
    run_folder: Callable[..., Path], deep_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder()
    rows = run_sweep(folder, [1, 3], settings(), deep_config)
    assert [row.exit_layer for row in rows] == [1, 3]
    assert all(row.num_draft_tokens in (1, 2, 3, 4) for row in rows)
    assert all(row.draft_step_ratio is not None and row.draft_step_ratio > 0 for row in rows)
    found = json.loads((folder / "sweep.json").read_text())
    assert [row["exit_layer"] for row in found["layers"]] == [1, 3]
    assert not (folder / "settings.json").exists(), "the folder is still free for a training"
    assert not list(folder.glob("sweep-*/features")), "all layers share one"

    with monkeypatch.context() as patch:
        patch.setattr(run, "load_target", pytest.fail)
        assert run_sweep(folder, [1, 3], settings(), deep_config) == rows, "nothing is made again"
        patch.setattr(run, "measured_end_to_end", lambda *_: pytest.fail("as far as it should go"))
        with pytest.raises(pytest.fail.Exception, match="as far as it should go"):
            train(folder, settings(exit_layer=3, train_tokens=1), deep_config)


def test_a_later_sweep_adds_its_layers(run_folder: Callable[..., Path], deep_config: Config) -> None:
    """Trained as long, that is; a damaged file is written anew."""
    folder = run_folder()
    run_sweep(folder, [3], settings(), deep_config)
    both = run_sweep(folder, [1], settings(), deep_config)
    assert [row.exit_layer for row in both] == [1, 3]
    found = json.loads((folder / "sweep.json").read_text())
    assert [row["exit_layer"] for row in found["layers"]] == [1, 3]
    longer = run_sweep(folder, [2], settings(train_tokens=1500), deep_config)
    assert [row.exit_layer for row in longer] == [2]
    (folder / "sweep.json").write_text("{")
    assert [row.exit_layer for row in run_sweep(folder, [1], settings(), deep_config)] == [1]


def test_other_data_than_in_the_sweep_are_refused(
    run_folder: Callable[..., Path], deep_config: Config, write_lines: Callable[..., str]
) -> None:
    folder = run_folder()
    run_sweep(folder, [1], settings(), deep_config)
    other = settings(data=(write_lines({"text": "another"}),))
    with pytest.raises(UserError, match=r"--data: .*sweep-1 was begun with"):
        run_sweep(folder, [2], other, deep_config)
    with pytest.raises(UserError, match=r"--data: .*sweep-1 was begun with"):
        train(folder, other, deep_config)


def test_a_layer_too_deep_is_refused_before_any_training(
    run_folder: Callable[..., Path], deep_config: Config
) -> None:
    folder = run_folder()
    with pytest.raises(UserError, match=r"--sweep: .* the target has 4 layers, .* \(got 4\)"):
        run_sweep(folder, [1, 4], settings(), deep_config)
    assert not list(folder.glob("sweep-*"))
