"""Hooks check what they replace, and give it back."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from foredraft.integration.vllm.hooks import Hook, HookError, HookSet

pytestmark = pytest.mark.vllm

TARGET = "vllm.sampling_params:SamplingParams._validate_logit_bias"


def replacing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: original(*args)


def hook(name: str = "one", target: str = TARGET, parameters: tuple[str, ...] | None = None) -> Hook:
    return Hook(name, "a test", target, parameters or ("self", "model_config"), replacing)


def attribute() -> Any:
    from vllm import SamplingParams

    return vars(SamplingParams)["_validate_logit_bias"]


def test_a_hook_is_applied_once_and_taken_back() -> None:
    original = attribute()
    hooks = HookSet([hook()])
    hooks.apply()
    replaced = attribute()
    hooks.apply()
    assert attribute() is replaced is not original
    hooks.remove()
    assert attribute() is original
    assert not hooks.applied


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (
            hook("two", parameters=("self", "config")),
            r"takes \(self, model_config\) .* expected \(self, config\)",
        ),
        (hook("two", target="vllm.sampling_params:SamplingParams.no_such"), "has no vllm.sampling_params"),
        (hook("two", target="vllm.no_such:SamplingParams.verify"), "is not in vLLM"),
    ],
)
def test_one_that_does_not_fit_leaves_all_as_they_were(bad: Hook, sentence: str) -> None:
    original = attribute()
    hooks = HookSet([hook(), bad])
    with pytest.raises(HookError, match=sentence) as raised:
        hooks.apply()
    assert "\n" not in str(raised.value)
    assert attribute() is original
    assert [state.problem is None for state in hooks.states()] == [True, False]


def test_what_another_plugin_replaced_is_refused() -> None:
    """Two patches of one attribute: the second would act on what it was not written for."""
    first = HookSet([hook()])
    first.apply()
    try:
        with pytest.raises(HookError, match=r"already replaced by .*test_hooks"):
            HookSet([hook()]).apply()
    finally:
        first.remove()


def test_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.__version__", "0.33.0+cpu")
    with pytest.raises(HookError, match=r"works with vLLM 0\.32\.0, but 0\.33\.0 is installed"):
        HookSet([hook()]).apply()


def test_every_hook_fits_the_installed_vllm() -> None:
    from foredraft.integration.vllm.request_hooks import REQUEST_HOOKS
    from foredraft.integration.vllm.runner_hooks import RUNNER_HOOKS
    from foredraft.integration.vllm.watch import WATCH

    for hooks in (WATCH, REQUEST_HOOKS, RUNNER_HOOKS):
        assert [state.problem for state in hooks.states()] == [None] * len(hooks.hooks)
        for one in hooks.hooks:
            assert inspect.isfunction(vars(one.owner()[0])[one.owner()[1]])
