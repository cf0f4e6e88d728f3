from dataclasses import replace

import pytest

from foredraft.integration.compare.plan import (
    Cell,
    ComparePlan,
    compared_configs,
    parse_batch_sizes,
    parse_rates,
    parse_temperatures,
    proposer_configs,
    request_params,
    split_lists,
    with_short_outputs,
)
from foredraft.integration.compare.statistics.looks import LOOKS
from foredraft.integration.config import Config
from foredraft.integration.config_sources import load_config
from foredraft.integration.errors import UserError


def test_the_baseline_always_runs_and_comes_first() -> None:
    config = Config()
    assert list(proposer_configs(config, ["ngram", "ngram"])) == ["none", "ngram"]
    assert list(proposer_configs(config, ["ngram", "none"])) == ["none", "ngram"]
    assert [one.proposer for one in proposer_configs(config, ["ngram"]).values()] == ["none", "ngram"]


@pytest.mark.parametrize(
    ("overrides", "proposers", "variants", "names", "optional"),
    [
        ({}, None, [], ["none", "ngram", "draft", "early_exit"], {"ngram", "draft", "early_exit"}),
        ({"proposer": "draft"}, None, [], ["none", "draft"], set()),
        ({}, "ngram", [], ["none", "ngram"], set()),
        ({}, None, ["k3:num_draft_tokens=3"], ["none", "k3"], set()),
        ({}, "draft", ["k3:num_draft_tokens=3"], ["none", "draft", "k3"], set()),
    ],
)
def test_what_is_compared_follows_from_what_was_asked_for(
    overrides: dict[str, str],
    proposers: str | None,
    variants: list[str],
    names: list[str],
    optional: set[str],
) -> None:
    configs, left_out = compared_configs(load_config(None, overrides), proposers, variants)
    assert list(configs) == names
    assert left_out == optional


def test_a_variant_may_not_be_called_like_a_proposer_in_the_comparison() -> None:
    with pytest.raises(UserError, match="'ngram' is that of a proposer"):
        compared_configs(load_config(None, {}), "ngram", ["ngram:num_draft_tokens=3"])


@pytest.mark.parametrize(
    ("overrides", "proposers", "option"),
    [({}, "none", "--proposers"), ({"proposer": "none"}, None, "proposer")],
)
def test_plain_decoding_alone_is_no_comparison(
    overrides: dict[str, str], proposers: str | None, option: str
) -> None:
    with pytest.raises(UserError, match=f"^{option}: needs something to compare with none"):
        compared_configs(load_config(None, overrides), proposers, [])
    assert len(compared_configs(load_config(None, overrides), proposers, ["again:proposer=none"])[0]) == 2


def test_outputs_are_short_unless_a_length_is_asked_for() -> None:
    assert with_short_outputs(load_config(None, {})).config.sampling.max_tokens == 48
    asked = load_config(None, {"sampling.max_tokens": 256})
    assert with_short_outputs(asked).config.sampling.max_tokens == 256


def test_the_level_shares_the_error_between_all_comparisons() -> None:
    plan = ComparePlan(proposer_configs(Config(), ["ngram", "draft"]), ("a", "b"), (1, 8), (0.0,))
    assert 1 - plan.interval_level(4) == pytest.approx(0.05 / ((2 * (4 + 2) + 2) * len(LOOKS)))
    fixed = replace(plan, repeats=3)
    assert 1 - fixed.interval_level(4) == pytest.approx(0.05 / (2 * (4 + 2) + 2))
    assert 1 - fixed.without({"draft"}).interval_level(4) == pytest.approx(0.05 / (4 + 2))
    alone = replace(fixed, workloads=("a",))
    assert 1 - alone.interval_level(2) == pytest.approx(0.05 / (2 * 2 + 2)), "one workload is its own whole"


def test_each_proposer_keeps_the_rest_of_the_configuration() -> None:
    config = Config(ngram={"max_n": 7}, sampling={"logit_bias": {5: 1.5}, "stop": ["END"]})
    for one in proposer_configs(config, ["ngram"]).values():
        assert (one.ngram, one.sampling) == (config.ngram, config.sampling)


@pytest.mark.parametrize("text", ["ngrm", "none,,ngram", ""])
def test_bad_proposers_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="proposer"):
        compared_configs(load_config(None, {}), text, [])


def test_batch_sizes() -> None:
    assert parse_batch_sizes("8, 1,8") == (8, 1)


@pytest.mark.parametrize("text", ["0", "1,-2", "257", "1.5", "two", "1,,2"])
def test_bad_batch_sizes_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--batch-sizes"):
        parse_batch_sizes(text)


def test_temperatures() -> None:
    config = Config(sampling={"temperature": 0.3})
    assert parse_temperatures(None, config) == (0.3,)
    assert parse_temperatures("0,0.7", config) == (0.0, 0.7)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "hot", "101"])
def test_bad_temperatures_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="temperature"):
        parse_temperatures(text, Config())


def test_workloads_come_as_list_and_repeated() -> None:
    assert split_lists("--workload", ["chat,copy_heavy", "chat", "mine.jsonl"]) == (
        "chat",
        "copy_heavy",
        "mine.jsonl",
    )


def test_cells_are_every_combination() -> None:
    configs = proposer_configs(Config(num_draft_tokens=3), ["ngram"])
    plan = ComparePlan(configs, ("a", "b"), (1, 8), (0.0, 1.0))
    cells = plan.cells()
    assert len(set(cells)) == len(cells) == 8
    assert cells[:3] == [Cell("a", 1, 0.0), Cell("a", 1, 1.0), Cell("a", 8, 0.0)]
    assert {cell.workload for cell in plan.cells(["a/x", "a/y"])} == {"a/x", "a/y"}


def test_the_seed_of_the_requests_goes_before_that_of_the_engine() -> None:
    def seed_of(**sections: dict[str, int]) -> int:
        return ComparePlan(proposer_configs(Config(**sections), []), ("a",), (1,), (0.0,)).seed

    assert seed_of(engine={"seed": 3}) == 3
    assert seed_of(engine={"seed": 3}, sampling={"seed": 0}) == 0


def test_requests_carry_the_configured_sampling() -> None:
    config = Config(sampling={"top_p": 0.9, "max_tokens": 7, "logit_bias": {5: 1.0}})
    params = request_params(config, 0.5, seed=11)
    assert (params.temperature, params.seed, params.top_p, params.max_tokens) == (0.5, 11, 0.9, 7)
    assert params.logit_bias == {5: 1.0}


def test_several_completions_per_prompt_are_refused() -> None:
    """They would run side by side and exceed the batch size."""
    with pytest.raises(UserError, match=r"sampling\.n"):
        request_params(Config(sampling={"n": 2}), 0.0, seed=0)


@pytest.mark.parametrize("text", ["0", "-1", "fast", "1,,2", "nan", "inf"])
def test_bad_rates_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--rates"):
        parse_rates(text)
