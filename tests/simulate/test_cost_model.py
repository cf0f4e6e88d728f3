"""The cost model: by hand where it is simple, and in the right direction elsewhere."""

import pytest

from foredraft.integration.simulate.predict import Prediction, predict, stops_paying_at
from foredraft.scheduler.hardware_model.cost_model import Measured, Roofline
from foredraft.scheduler.hardware_model.hardware import GPUS, Gpu
from foredraft.scheduler.hardware_model.language_models import MODELS, ModelSize

GPU = Gpu(bandwidth=1e9, flops=1e12, memory=1e9, link=1e9, source="made up")
MODEL = ModelSize(1e8, 10, 100, 4, 2, 25, 1_000, False, "made up")


def roofline(**changes: object) -> Roofline:
    given: dict[str, object] = {"gpu": GPU, "target": MODEL, "draft": None, "context": 1}
    return Roofline(**(given | {"layer_overhead_s": 0.0} | changes))  # type: ignore[arg-type]


def test_one_token_is_bound_by_reading_the_weights() -> None:
    weights = (1e8 - 1_000 * 100) * 2
    cache = 2 * 10 * 2 * 25 * 2
    assert roofline().pass_s(1, 1) == pytest.approx((weights + cache) / (0.8 * 1e9))
    assert roofline().pass_s(1, 1) == roofline().pass_s(1, 100)


def test_many_tokens_are_bound_by_arithmetic() -> None:
    per_token = 2 * (1e8 - 1_000 * 100) + 4 * 10 * 4 * 25
    assert roofline().pass_s(512, 10_000) == pytest.approx(10_000 * per_token / (0.6 * 1e12))


def test_what_makes_a_pass_longer() -> None:
    plain = roofline().pass_s(8, 8)
    assert roofline(context=100_000).pass_s(8, 8) > 1.5 * plain
    assert roofline(layer_overhead_s=1e-3).pass_s(8, 8) == pytest.approx(plain + 10e-3)
    assert roofline(weight_bytes=1.0).pass_s(8, 8) == pytest.approx(plain / 2, rel=0.01)
    assert plain / 2 < roofline(num_gpus=2).pass_s(8, 8) < plain


def test_a_tied_embedding_is_read_as_the_head() -> None:
    assert MODELS["qwen2.5-0.5b"].params_read == MODELS["qwen2.5-0.5b"].num_params
    assert MODELS["llama-3.1-8b"].params_read == pytest.approx(7.5e9, rel=0.01)


def test_what_does_not_fit_is_named() -> None:
    assert roofline().why_not(1) is None
    reason = roofline(context=1_000_000).why_not(8)
    assert reason is not None
    assert "GB" in reason


@pytest.mark.parametrize("gpu", GPUS)
def test_presets_are_of_the_right_size(gpu: str) -> None:
    one = GPUS[gpu]
    assert 1e11 < one.bandwidth < 1e13
    assert 1e13 < one.flops < 1e16
    assert 1e10 < one.memory < 1e12
    assert one.source


def test_measured_costs_are_interpolated() -> None:
    costs = Measured(2, [1.0, 1.2, 1.4], [0.0, 0.1, 0.2])
    assert costs.pass_s(2, 2) == 1.0
    assert costs.pass_s(2, 3) == pytest.approx(1.1)
    assert costs.draft_step_s(2) == pytest.approx(0.1)
    assert costs.why_not(2) is None
    assert costs.why_not(4) is not None


def test_the_formula_of_a_fixed_length() -> None:
    """(1 + a + a^2) / (T(3) / T(1) + 2 t): Leviathan et al., 2023."""
    costs = Measured(1, [1.0, 1.1, 1.2, 1.3], [0.0, 0.1, 0.2, 0.3])
    prediction = predict(costs, [0.5, 0.5, 0.5], 1)
    assert prediction.speedups[1] == pytest.approx(1.75 / (1.2 + 0.2))
    assert prediction.best_length == 2
    assert prediction.controller == pytest.approx(prediction.best_speedup, rel=0.04)


def test_the_controller_leaves_drafts_out_where_they_do_not_pay() -> None:
    prediction = predict(Measured(1, [1.0, 1.5, 2.0], [0.0, 0.5, 1.0]), [0.3, 0.3], 1)
    assert prediction.best_length == 0
    assert not prediction.pays
    assert prediction.controller > 0.98
    assert prediction.mean_length < 0.1


def test_where_it_stops_paying() -> None:
    def of(batch_size: int, speedup: float) -> Prediction:
        return Prediction(batch_size, 1.0, [speedup], 1.0, 0.0)

    assert stops_paying_at([of(1, 1.5), of(8, 1.2), of(64, 0.9), of(512, 0.8)]) == 64
    assert stops_paying_at([of(1, 1.5), of(8, 1.2)]) is None
    assert stops_paying_at([of(1, 0.9), of(8, 1.2), of(64, 0.9)]) == 64
    assert stops_paying_at([]) is None
