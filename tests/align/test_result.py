"""What the figures are said to mean, for people and for programs."""

import json
from collections.abc import Callable

import pytest
from rich.console import Console

from foredraft.integration.align.costs import Costs
from foredraft.integration.align.measure import Acceptance
from foredraft.integration.align.result import AlignResult
from foredraft.integration.align.table import print_result

MakeAcceptance = Callable[..., Acceptance]
MakeCosts = Callable[[list[float]], Costs]


def shown(result: AlignResult) -> str:
    console = Console(width=100, record=True, quiet=False, file=None, color_system=None)
    with console.capture() as capture:
        print_result(result, console)
    return capture.get()


def test_the_best_length_is_named(make_acceptance: MakeAcceptance, make_costs: MakeCosts) -> None:
    acceptance = make_acceptance([1000, 600], [600, 300])
    result = AlignResult(0.0, 1, 2, acceptance, make_costs([1.0, 1.1, 1.2]))
    assert result.conclusion == "Best at batch size 8: num_draft_tokens 2, predicted speedup 1.58x."
    assert not result.is_thin
    text = shown(result)
    for figure in ("60%", "of 1000", "57-63%", "50%", "of 600", "1.45x", "1.58x", result.conclusion):
        assert figure in text
    document = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert document["best_num_draft_tokens"] == 2
    assert [each["speedup"] for each in document["predictions"]] == pytest.approx([1.6 / 1.1, 1.9 / 1.2])
    assert document["overall"]["position_acceptance"] == [0.6, 0.5]
    assert document["costs"]["draft_step_ratio"] == pytest.approx(0.1)


def test_no_gain_is_said(make_acceptance: MakeAcceptance, make_costs: MakeCosts) -> None:
    result = AlignResult(0.0, 1, 2, make_acceptance([1000, 100], [100, 10]), make_costs([1.0, 1.25, 1.5]))
    assert result.conclusion.startswith("No gain is to be expected at batch size 8: at best 0.88x")
    assert result.as_json()["best_num_draft_tokens"] is None


@pytest.mark.parametrize("acceptance", [Acceptance(), None])
def test_nothing_drafted_is_no_data(
    make_acceptance: MakeAcceptance, make_costs: MakeCosts, acceptance: Acceptance | None
) -> None:
    result = AlignResult(0.0, 1, 2, acceptance or make_acceptance([], []), make_costs([1.0, 1.25, 1.5]))
    assert result.conclusion == "No data: nothing was drafted."
    assert result.speedups is None
    assert "nan" not in shown(result)
    assert json.loads(json.dumps(result.as_json(), allow_nan=False))["overall"]["acceptance_rate"] is None


def test_short_drafts_get_no_prediction(make_acceptance: MakeAcceptance, make_costs: MakeCosts) -> None:
    acceptance = make_acceptance([1000, 600], [600, 300], drafted_share=0.5)
    result = AlignResult(0.0, 1, 2, acceptance, make_costs([1.0, 1.1, 1.2]))
    assert result.speedups is None
    assert "drafts 50% of what it may" in result.conclusion
    assert "foredraft compare" in result.conclusion


def test_without_costs_acceptance_is_shown(make_acceptance: MakeAcceptance) -> None:
    text = shown(AlignResult(0.0, 1, 2, make_acceptance([1000, 600], [600, 300]), None))
    assert "of 1000" in text
    assert "The costs were not measured" in text


def test_little_data_is_said(make_acceptance: MakeAcceptance, make_costs: MakeCosts) -> None:
    result = AlignResult(0.0, 1, 2, make_acceptance([20, 12], [12, 6]), make_costs([1.0, 1.1, 1.2]))
    assert result.is_thin
    assert "rests on little" in shown(result)
