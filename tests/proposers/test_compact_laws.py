"""Laws on their way between processes: exact, and no longer than what they keep."""

from __future__ import annotations

import pytest
import torch

from foredraft.proposers.compact_laws import DraftedRow, law_of_row, pack_laws, unpack_laws
from foredraft.verifier import DraftProbs


def random_law(
    num_places: int, num_candidates: int, num_kept: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Laws whose kept tokens lie anywhere among the candidates."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.zeros(num_places, num_candidates)
    ids = torch.stack([torch.randperm(1000, generator=generator)[:num_candidates] for _ in range(num_places)])
    for place in range(num_places):
        kept = torch.randperm(num_candidates, generator=generator)[:num_kept]
        probs[place, kept] = torch.rand(num_kept, generator=generator).softmax(0)
    return probs, ids


def dense(probs: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(probs), 1000).scatter_add_(1, ids, probs)


def test_every_probability_arrives_to_the_bit() -> None:
    laws = [random_law(3, 40, kept, seed) for seed, kept in enumerate((2, 5, 1))]
    lengths = (3, 2, 1)
    rows = [DraftedRow([7] * n, probs[:n], ids[:n]) for n, (probs, ids) in zip(lengths, laws, strict=True)]
    packed = pack_laws(rows, 3)
    assert packed.token_ids.shape == packed.probs.shape == (3, 3, 5)
    back = unpack_laws(packed, [0, 2, 5], torch.device("cpu"))
    assert back.rows.tolist() == [0, 2, 5]
    for entry, (length, (probs, ids)) in enumerate(zip(lengths, laws, strict=True)):
        assert torch.equal(dense(*law_of_row(back, entry, length)), dense(probs[:length], ids[:length]))


def test_tokens_are_distinct_at_each_place() -> None:
    """Also where a law keeps fewer than the others: padding must not hide a token."""
    rows = [DraftedRow([1], *random_law(1, 30, kept, kept)) for kept in (1, 9)]
    for place in pack_laws(rows, 1).token_ids[:, 0]:
        assert len(set(place.tolist())) == 9


@pytest.mark.parametrize("support", [None, torch.tensor([4, 8, 1])])
def test_dense_and_shared_supports_are_read(support: torch.Tensor | None) -> None:
    probs = torch.tensor([[[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]])
    row, ids = law_of_row(DraftProbs(torch.tensor([0]), probs, support), 0, 2)
    assert torch.equal(row, probs[0])
    assert ids.tolist() == [[0, 1, 2] if support is None else [4, 8, 1]] * 2


def test_a_point_mass_has_no_laws_to_pack() -> None:
    with pytest.raises(ValueError, match="point mass"):
        pack_laws([DraftedRow([1])], 1)
