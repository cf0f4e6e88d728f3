"""temperature, min-p, top-k and top-p against plain Python, in every way they are worked out."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.verifier import RowSampling, target_probs


def rows_of(size, temperature=1.0, **controls):
    tensors = {name: torch.full((size,), value) for name, value in controls.items()}
    return RowSampling(torch.full((size,), temperature), **tensors)


@pytest.mark.parametrize("vocab_size", [2, 5, 70, 1500])
def test_equals_the_plain_computation(vocab_size, law_of):
    """Every row has its own mix of controls, so the ways of working them out meet in one batch."""

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 10**6),
        scale=st.sampled_from([0.05, 1.0, 5.0]),
        temperature=st.sampled_from([0.3, 1.0, 2.0]),
        top_k=st.sampled_from([0, 1, 3, 60, 1300, 5000]),
        top_p=st.sampled_from([1.0, 0.05, 0.6, 0.97]),
        min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    )
    def check(seed, scale, temperature, top_k, top_p, min_p):
        logits = torch.randn(4, vocab_size, generator=torch.Generator().manual_seed(seed)) * scale
        rows = RowSampling(
            torch.full((4,), temperature),
            top_k=torch.tensor([0, top_k, top_k, 0]),
            top_p=torch.tensor([top_p, 1.0, top_p, 1.0]),
            min_p=torch.tensor([min_p, 0.0, min_p, 0.0]),
        )
        probs = target_probs(logits, rows)
        for row in range(4):
            controls = (int(rows.top_k[row]), float(rows.top_p[row]), float(rows.min_p[row]))
            expected = torch.tensor(law_of(logits[row].tolist(), temperature, *controls))
            assert torch.equal(probs[row] > 0, expected > 0), row
            assert torch.allclose(probs[row], expected, rtol=1e-4, atol=1e-7), row

    check()


@pytest.mark.parametrize("top_p", [0.02, 0.5, 0.95, 0.9999])
@pytest.mark.parametrize("scale", [0.0001, 0.3, 3.0, 8.0])
def test_top_p_is_the_smallest_sufficient_set_of_a_large_vocabulary(scale, top_p):
    logits = torch.randn(6, 20_011, generator=torch.Generator().manual_seed(3)) * scale
    probs, exact = target_probs(logits, rows_of(6, top_p=top_p)), logits.double().softmax(-1)
    for row in range(6):
        kept = exact[row][probs[row] > 0]
        dropped = exact[row][probs[row] == 0]
        assert kept.min() >= dropped.max() * (1 - 1e-6), "weights closer than float32 can tell are ties"
        assert kept.sum() > top_p - 1e-6
        assert kept.sum() - kept.min() < top_p + 1e-6


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize(("top_p", "expected"), [(0.25, 64), (0.0625, 16), (0.5, 128), (0.001, 1)])
def test_top_p_ties_go_to_the_lowest_ids(top_p, expected, spread):
    """256 equal tokens among (if spread) impossible ones, in small and in large sets."""
    logits = torch.full((2, 512), -math.inf if spread else 0.0)
    ids = torch.arange(0, 512, 2) if spread else torch.arange(512)
    logits[:, ids] = 0.0
    kept = (target_probs(logits, rows_of(2, top_p=top_p))[1] > 0).nonzero().squeeze(1)
    count = expected if spread or top_p == 0.001 else 2 * expected
    assert kept.tolist() == ids[:count].tolist()


@pytest.mark.parametrize("controls", [{}, {"top_k": 50}])
def test_ties_among_few_candidates_go_to_the_lowest_ids(controls):
    """40 equal tokens all over a large vocabulary; half of them are kept."""
    ids = torch.randperm(20_000, generator=torch.Generator().manual_seed(0))[:40]
    logits = torch.linspace(-50, -60, 20_000)[None].clone()
    logits[0, ids] = 0.0
    probs = target_probs(logits, rows_of(1, top_p=0.49, **controls))[0]
    assert (probs > 0).nonzero().flatten().tolist() == sorted(ids.tolist())[:20]


@pytest.mark.parametrize("impossible", [0, 300])
def test_top_p_cuts_ties_behind_likelier_tokens(impossible):
    """0.5 + 3 of 8 x 0.0625, where the tied tokens have the lower ids."""
    logits = torch.tensor([[1.0] * 8 + [8.0] + [0.0] * impossible]).log()
    probs = target_probs(logits, rows_of(1, top_p=0.6875))[0]
    assert (probs > 0).nonzero().flatten().tolist() == [0, 1, 2, 8]


@pytest.mark.parametrize("vocab_size", [8, 300])
def test_top_k_keeps_ties_with_the_kth(vocab_size):
    logits = torch.full((1, vocab_size), -9.0)
    logits[0, :8] = torch.tensor([3.0, 1.0, 2.0, 2.0, 1.0, 2.0, 0.0, 0.0])
    kept = [(target_probs(logits, rows_of(1, top_k=k))[0] > 0).sum().item() for k in (1, 2, 3, 4, 5, 6)]
    assert kept == [1, 4, 4, 4, 6, 6]


def test_top_k_of_more_than_are_allowed():
    logits = torch.full((1, 300), -math.inf)
    logits[0, [4, 70, 299]] = torch.tensor([0.0, 1.0, 2.0])
    probs = target_probs(logits, rows_of(1, top_k=50))
    assert torch.allclose(probs[0, [4, 70, 299]], torch.tensor([0.0, 1.0, 2.0]).softmax(0))
    assert float(probs.sum()) == pytest.approx(1)


def test_greedy_rows_are_one_hot_and_harm_no_other():
    logits = torch.tensor([[1.0, 5.0, 5.0], [1.0, 2.0, 3.0]])
    probs = target_probs(logits, RowSampling(torch.tensor([0.0, 1.0])))
    assert probs[0].tolist() == [0, 1, 0]
    assert torch.allclose(probs[1], logits[1].softmax(0))
    assert target_probs(torch.full((1, 3), -math.inf), RowSampling(torch.zeros(1))).isnan().any()


def test_a_row_does_not_depend_on_its_batch():
    """Bit for bit, whatever the others ask for and however many there are."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(24, 60_000, generator=generator) * 3
    rows = RowSampling(
        torch.tensor([0.5, 1.0, 0.0, 2.0]).repeat(6),
        top_k=torch.tensor([0, 0, 0, 7, 50, 2000]).repeat(4),
        top_p=torch.tensor([1.0, 0.9, 0.5]).repeat(8),
        min_p=torch.tensor([0.0, 0.0, 0.0, 0.01]).repeat(6),
    )
    probs = target_probs(logits, rows)
    for row in range(24):
        alone = target_probs(logits[row : row + 1], rows.select(torch.tensor([row])))
        assert torch.equal(alone[0], probs[row])


def test_nan_rows_stay_alone_and_logits_unchanged():
    logits = torch.randn(3, 90, generator=torch.Generator().manual_seed(0))
    logits[1] = math.nan
    before = logits.clone()
    for controls in (
        {},
        {"top_k": 3},
        {"top_p": 0.5},
        {"min_p": 0.1},
        {"top_k": 3, "top_p": 0.5, "min_p": 0.1},
    ):
        probs = target_probs(logits, rows_of(3, **controls))
        assert torch.allclose(probs[[0, 2]].sum(1), torch.ones(2))
        assert torch.equal(probs[[0, 2]], target_probs(logits[[0, 2]], rows_of(2, **controls)))
    assert torch.equal(logits.nan_to_num(), before.nan_to_num())
