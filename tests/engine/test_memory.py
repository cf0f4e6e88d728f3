"""How many rows fit, in exact numbers, and what is refused before anything is allocated."""

import pytest
import torch

from foredraft.integration.config_sections import EngineOptions
from foredraft.integration.embedded.memory import check_free_memory, plan_memory, workspace_bytes
from foredraft.integration.errors import UserError


def test_memory_plan_in_exact_numbers() -> None:
    """1000 bytes a position: 1 MB holds 10 rows of 100 positions, not 11."""
    plan = plan_memory(EngineOptions(kv_cache_memory_gb=0.001, max_model_len=100, max_num_seqs=16), 1000, 512)
    assert (plan.num_rows, plan.capacity, plan.num_bytes) == (10, 100, 1_000_000)


def test_no_more_rows_than_asked_for_and_the_length_of_the_model() -> None:
    plan = plan_memory(EngineOptions(kv_cache_memory_gb=1.0, max_num_seqs=3), 1000, 512)
    assert (plan.num_rows, plan.capacity, plan.num_bytes) == (3, 512, 3 * 512 * 1000)


def test_a_budget_below_one_row_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"kv_cache_memory_gb: 0.0005 does not hold.*at most 500"):
        plan_memory(EngineOptions(kv_cache_memory_gb=0.0005), 1000, 512)


def test_a_length_beyond_the_model_is_refused() -> None:
    with pytest.raises(UserError, match="max_model_len: 513 exceeds the 512"):
        plan_memory(EngineOptions(max_model_len=513), 1000, 512)


def test_logits_of_a_full_batch_count() -> None:
    """F123: every row with its draft and one more, in float32, three times over."""
    assert workspace_bytes(16, 5, vocab_size=1000, drawn=False) == 3 * 16 * 6 * 1000 * 4


def test_what_is_not_free_is_refused() -> None:
    check_free_memory(1, torch.device("cpu"))
    with pytest.raises(UserError, match="kv_cache_memory_gb: cache and logits need"):
        check_free_memory(10**18, torch.device("cpu"))
