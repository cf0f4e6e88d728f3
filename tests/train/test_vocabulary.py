import pytest
import torch

from foredraft.integration.errors import UserError
from foredraft.integration.train.samples import Sample
from foredraft.integration.train.vocabulary import check_in_vocabulary, choose_head_ids, coverage

SAMPLES = [
    Sample(0, [9, 9, 9, 9, 5], prompt_len=1, loss_start=0),  # held out: 9 must not be chosen for it
    Sample(1, [8, 8, 8, 5, 5, 7], prompt_len=4, loss_start=3),  # 8 stands before what is predicted
    Sample(2, [5, 7, 6], prompt_len=0, loss_start=0),
]


def test_the_most_frequent_tokens_to_predict_are_kept_in_order() -> None:
    assert choose_head_ids(SAMPLES, 2, 10, []).tolist() == [5, 7]
    assert choose_head_ids(SAMPLES, 3, 10, []).tolist() == [5, 6, 7]


def test_filling_up_takes_the_lowest_ids() -> None:
    assert choose_head_ids(SAMPLES, 5, 10, []).tolist() == [0, 1, 5, 6, 7]


def test_the_ends_of_sequence_are_always_kept() -> None:
    assert choose_head_ids(SAMPLES, 2, 10, [3, 99]).tolist() == [3, 5]


def test_a_head_larger_than_the_vocabulary_is_all_of_it() -> None:
    assert choose_head_ids(SAMPLES, 50, 10, []).tolist() == list(range(10))


def test_coverage_counts_held_out_tokens_only() -> None:
    assert coverage(SAMPLES, torch.tensor([5, 7])) == pytest.approx(1 / 5)
    assert coverage(SAMPLES[1:], torch.tensor([5, 7])) == 0.0


def test_tokens_of_another_model_are_refused() -> None:
    with pytest.raises(UserError, match="token 8 is outside the model's vocabulary of 8"):
        check_in_vocabulary([Sample(0, [1, 2], 0, 0), Sample(1, [8, 7], 2, 2)], 8)
    check_in_vocabulary(SAMPLES, 10)
    check_in_vocabulary([], 10)
