import math

import pytest
import torch

from foredraft.verifier import token_logprobs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_the_plain_computation(dtype):
    logits = (torch.randn(20, 50, generator=torch.Generator().manual_seed(0)) * 4).to(dtype)
    token_ids = torch.arange(20) * 2
    result = token_logprobs(logits, token_ids, 3)
    for row, (values, token) in enumerate(zip(logits.double().tolist(), token_ids.tolist(), strict=True)):
        normaliser = math.log(sum(math.exp(value) for value in values))
        assert result.logprobs[row].item() == pytest.approx(values[token] - normaliser, abs=1e-5)
        assert result.ranks[row] == sum(value >= values[token] for value in values)
        best = sorted(values, reverse=True)[:3]
        assert result.top_logprobs[row].tolist() == pytest.approx([v - normaliser for v in best], abs=1e-5)
        assert [values[one] for one in result.top_ids[row].tolist()] == best


def test_rank_counts_ties_and_no_top_is_empty():
    result = token_logprobs(torch.tensor([[1.0, 2.0, 2.0, 0.0]]).expand(4, -1), torch.arange(4), 0)
    assert result.ranks.tolist() == [3, 2, 2, 4]
    assert result.top_ids.shape == result.top_logprobs.shape == (4, 0)
