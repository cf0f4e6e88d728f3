"""Philox against its published answers, and streams that never share a number (F23, F25, F27)."""

import itertools

import pytest
import torch

from foredraft.verifier import Purpose, categorical, request_key, uniforms
from foredraft.verifier.cpu_random import cpu_uniforms
from foredraft.verifier.philox import philox
from foredraft.verifier.random import torch_uniforms

ONES = 0xFFFFFFFF

# Known answers of the authors' Random123 library, philox4x32-10.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def words(values):
    return tuple(torch.tensor([value]) for value in values)


def plain_philox(counter, key):
    """Ten rounds on Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(counter, key, answer):
    assert tuple(int(word) for word in philox(words(counter), words(key))) == answer
    assert plain_philox(counter, key) == answer


@pytest.mark.parametrize("of", [cpu_uniforms, torch_uniforms])
def test_uniforms_are_laid_out_as_documented(of):
    """Counter words: call, position, offset, purpose; two doubles of 53 bits per call; negative keys too."""
    key = -123_456_789_012_345
    drawn = of(torch.tensor([key]), torch.tensor([70_000]), torch.tensor([3]), Purpose.ACCEPT, 4)
    expected = []
    for call in range(2):
        a, b, c, d = plain_philox((call, 70_000, 3, int(Purpose.ACCEPT)), (key % 2**32, (key >> 32) % 2**32))
        expected += [((high >> 5) * 2**26 + (low >> 6)) / 2**53 for high, low in ((a, b), (c, d))]
    assert drawn.tolist() == [expected]


def test_a_number_does_not_depend_on_the_batch_or_the_count():
    keys, places = torch.arange(50) * 10**15, torch.arange(50) * 7
    together = uniforms(keys, places, places + 1, Purpose.DRAFT, 9)
    alone = uniforms(keys[7:8], places[7:8], places[7:8] + 1, Purpose.DRAFT, 2)
    assert together.shape == (50, 9)
    assert together.dtype == torch.float64
    assert torch.equal(together[7:8, :2], alone)


@pytest.mark.parametrize("count", [1, 2, 7, 140])
@pytest.mark.parametrize("num_places", [0, 1, 5, 300])
def test_numpy_and_torch_draw_the_same_bits(num_places, count):
    generator = torch.Generator().manual_seed(num_places)
    keys = torch.randint(-(2**63), 2**63 - 1, (num_places,), generator=generator)
    positions, offsets = torch.randint(0, 2**32, (2, num_places), generator=generator)
    for purpose in Purpose:
        expected = torch_uniforms(keys, positions, offsets, purpose, count)
        drawn = cpu_uniforms(keys, positions, offsets, purpose, count)
        assert torch.equal(drawn, expected)
        assert drawn.dtype == expected.dtype == torch.float64
        assert torch.equal(uniforms(keys, positions, offsets, purpose, count), expected)


def test_zero_bits_still_give_a_positive_number(monkeypatch):
    zero, ones = torch.zeros(1, 1, dtype=torch.int64), torch.full((1, 1), ONES)
    monkeypatch.setattr("foredraft.verifier.random.philox", lambda counter, key: (zero, zero, ones, ones))
    pairs = (torch.stack((zero, ones)).numpy(),) * 2
    monkeypatch.setattr("foredraft.verifier.cpu_random._philox_pairs", lambda words, others, keys: pairs)
    one = torch.ones(1, dtype=torch.int64)
    for of in (cpu_uniforms, torch_uniforms):
        smallest, largest = of(one, one, one, Purpose.DRAFT, 2)[0].tolist()
        assert 0 < smallest == 2.0**-54
        assert largest == 1 - 2.0**-53 < 1


def test_no_number_is_used_twice():
    """Every request, place, offset, purpose and index has its own."""
    places = list(itertools.product((1, 2, 2**40), range(12), range(5)))
    columns = [torch.tensor(column) for column in zip(*places, strict=True)]
    numbers = torch.cat([uniforms(*columns, purpose, 8).flatten() for purpose in Purpose])
    assert len(numbers.unique()) == len(numbers)


@pytest.mark.parametrize("neighbour", ["index", "offset", "position", "request", "purpose"])
def test_neighbouring_numbers_are_uncorrelated(neighbour):
    """50 000 pairs: the correlation's standard error is 0.0045, the bound is five of them."""
    count = 50_000
    keys = torch.arange(count) if neighbour == "request" else torch.full((count,), 5)
    positions = torch.arange(count) if neighbour == "position" else torch.full((count,), 9)
    offsets = torch.arange(count) if neighbour in ("offset", "purpose") else torch.zeros_like(keys)
    if neighbour == "index":
        pairs = uniforms(torch.arange(count), positions, offsets, Purpose.DRAFT, 2).T
    else:
        first = uniforms(keys, positions, offsets, Purpose.DRAFT, 1).squeeze(1)
        other = Purpose.ACCEPT if neighbour == "purpose" else Purpose.DRAFT
        second = uniforms(keys, positions, offsets, other, 1).squeeze(1)
        pairs = torch.stack((first[:-1], second[1:] if other == Purpose.DRAFT else second[:-1]))
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 0.0225
    assert abs(float(pairs.mean()) - 0.5) < 5 * (1 / 12 / pairs.numel()) ** 0.5


def test_consecutive_tokens_are_uncorrelated():
    """Two tokens of a block must not share a random number (F27)."""
    count = 50_000
    uniform = torch.ones(count, 16)
    keys = torch.full((count,), request_key(3, 0, ""))
    tokens = categorical(uniform, keys, torch.arange(count), torch.zeros_like(keys), Purpose.TARGET).double()
    assert abs(float(torch.corrcoef(torch.stack((tokens[:-1], tokens[1:])))[0, 1])) < 0.0225


def test_request_keys():
    """Seeded: the seed alone. Unseeded: engine seed and id; a number is not mistaken for an id (F25)."""
    assert request_key(7, 0, "a") == request_key(7, 1, "b")
    keys = [
        request_key(7, 0, "a"),
        request_key(8, 0, "a"),
        request_key(None, 0, "a"),
        request_key(None, 1, "a"),
        request_key(None, 0, "b"),
        request_key(None, 0, "7"),
        request_key(None, 1, "0 a"),
        request_key(None, 10, "a"),
    ]
    assert len(set(keys)) == len(keys)
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert request_key(None, 0, "a") == 4986130887875280111, "keys must not change between releases"
