"""Which prompts are served, in which order, by which proposer."""

from pathlib import Path

import pytest

from foredraft.integration.align.plan import AlignPlan, align_config, in_turn, load_prompts
from foredraft.integration.config import Config
from foredraft.integration.config_sources import load_config
from foredraft.integration.errors import UserError


def plan_of(*workloads: str, limit: int | None = None) -> AlignPlan:
    return AlignPlan(Config(), workloads, (0.0,), batch_size=1, seconds=1.0, limit=limit)


def test_groups_take_turns() -> None:
    assert in_turn({"a": [1, 2, 3], "b": [], "c": [4, 5]}) == [1, 4, 2, 5, 3]
    assert in_turn({}) == []


def test_a_limit_is_fair_to_categories(workload_file: Path) -> None:
    prompts = load_prompts(plan_of(str(workload_file), limit=3))
    assert [(name, prompt.turns[0]) for name, prompt in prompts] == [
        ("a", "abc0"),
        ("b", "abc3"),
        ("a", "abc1"),
    ]


def test_categories_of_several_workloads_stay_apart(workload_file: Path) -> None:
    names = [name for name, _ in load_prompts(plan_of(str(workload_file), "copy_heavy", limit=2))]
    assert names == ["mine.jsonl: a", "mine.jsonl: b", "copy_heavy: prose", "copy_heavy: list"]


def test_the_proposer_is_draft_unless_another_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("proposer: ngram\n")
    assert align_config(load_config(None, {}), None).proposer == "draft"
    assert align_config(load_config(None, {"proposer": "ngram"}), None).proposer == "ngram"
    assert align_config(load_config(file, {}), None).proposer == "ngram"
    with pytest.raises(UserError, match="drafts nothing"):
        align_config(load_config(None, {"proposer": "none"}), None)


def test_lengths_are_the_users_or_ours() -> None:
    config = align_config(load_config(None, {}), None)
    assert (config.num_draft_tokens, config.sampling.max_tokens) == (4, 64)
    config = align_config(load_config(None, {"num_draft_tokens": 2, "sampling.max_tokens": 256}), None)
    assert (config.num_draft_tokens, config.sampling.max_tokens) == (2, 256)
    assert align_config(load_config(None, {"num_draft_tokens": 2}), 6).num_draft_tokens == 6
