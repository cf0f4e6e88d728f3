"""``foredraft simulate`` from the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foredraft.integration.cli import app
from foredraft.integration.errors import UserError

QUICK = ["--batch-sizes", "1,64", "--max-draft-tokens", "3"]


def run(*options: str) -> str:
    result = CliRunner().invoke(app, ["simulate", *options], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_table_and_where_it_ends() -> None:
    output = run("--gpu", "h200", "--acceptance", "0.2", "--draft", "qwen2.5-7b", *QUICK)
    assert "does not pay at any batch size looked at." in output
    assert "1 x h200" in output


def test_json() -> None:
    document = json.loads(run("--json", *QUICK))
    assert [result["batch_size"] for result in document["results"]] == [1, 64]
    first = document["results"][0]
    assert len(first["speedups"]) == 3
    assert first["best_speedup"] == max(first["speedups"])
    assert first["controller"] > 1.2
    assert document["acceptance"] == [0.75, 0.7, 0.65]


def test_a_batch_that_does_not_fit_is_left_out() -> None:
    document = json.loads(run("--json", "--gpu", "rtx-4090", "--context", "8000", *QUICK))
    assert list(document["left_out"]) == ["64"]


def test_the_last_batch_that_pays_may_only_be_the_last_that_fits() -> None:
    options = ["--acceptance", "0.9", "--draft", "look-up", "--max-draft-tokens", "1"]
    assert "pays up to batch 2, the largest looked at." in run(*options, "--batch-sizes", "1,2")
    output = run(*options, "--context", "200000", "--batch-sizes", "1,2,512")
    assert "pays up to batch 2, the largest that fits." in output


def measured_file(folder: Path) -> Path:
    costs = {"batch_size": 4, "step_s": [1.0, 1.2, 1.4], "draft_s": [0.0, 0.1, 0.2]}
    result = {"temperature": 0.0, "overall": {"position_acceptance": [0.6]}, "costs": costs}
    path = folder / "align.json"
    path.write_text(json.dumps({"results": [result]}))
    return path


def test_what_align_measured(tmp_path: Path) -> None:
    document = json.loads(run("--json", "--measured", str(measured_file(tmp_path))))
    (result,) = document["results"]
    assert result["batch_size"] == 4
    assert result["speedups"] == pytest.approx([1.6 / 1.2, 1.96 / 1.4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpu", "h9"], "--gpu: should be one of h100"),
        (["--target", "x"], "--target: should be one of llama"),
        (["--draft", "x"], "--draft: should be one of look-up"),
        (["--acceptance", "0.5,1.5"], "--acceptance: needs shares"),
        (["--acceptance", "a"], "--acceptance: needs shares"),
        (["--batch-sizes", "0"], "--batch-sizes: needs whole numbers"),
        (["--batch-sizes", "1024"], "--batch-sizes: needs whole numbers"),
        (["--measured", "/nowhere"], "--measured: '/nowhere' is no result"),
        (["--draft", "llama-3.1-70b"], "--batch-sizes: none of them fits, batch 1 needs 158 GB, 80 GB"),
    ],
)
def test_refusals(options: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, ["simulate", *options], catch_exceptions=False)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"results": [{"temperature": 0.0}]}, r"is no result of foredraft align \(KeyError: 'costs'\)"),
        ({"results": [{"temperature": 0.0, "costs": {}, "overall": {}}]}, "is no result of foredraft align"),
        ({"results": []}, "has no results"),
    ],
)
def test_files_that_something_else_wrote(document: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, ["simulate", "--measured", str(path)], catch_exceptions=False)


def test_where_it_never_pays() -> None:
    assert "Speculation does not pay at any batch size looked at." in run(
        "--acceptance", "0", "--batch-sizes", "1,8"
    )


def test_another_temperature_is_refused(tmp_path: Path) -> None:
    options = ["--measured", str(measured_file(tmp_path)), "--temperature", "1"]
    with pytest.raises(UserError, match=r"^--temperature: .* has results at 0.0, got 1.0"):
        CliRunner().invoke(app, ["simulate", *options], catch_exceptions=False)
