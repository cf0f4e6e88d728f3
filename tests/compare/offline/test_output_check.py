"""A difference counts as a near-tie only where rounding explains it, and never in float32."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from foredraft.integration.compare.offline.output_check import (
    Difference,
    OutputChecker,
    first_difference,
    judge,
)
from foredraft.integration.embedded.build import Target
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.proposers.decoder import Tokens


class FakeDecoder:
    """Logits of token 0 and 1 are ``gap`` apart; a pass over several tokens moves token 2 by ``rounding``."""

    num_rows, num_layers, vocab_size = 1, 1, 4
    device = torch.device("cpu")

    def __init__(self, gap: float, rounding: float, capacity: int = 100, max_len: int = 100) -> None:
        self.gap, self.rounding = gap, rounding
        self.capacity, self.max_len = capacity, max_len
        self.passes: list[tuple[int, list[int]]] = []
        self._length = 7  # left over from an earlier request

    def forward(
        self, tokens: Tokens, layers: tuple[int, int] | None = None, hidden: Tensor | None = None
    ) -> Tensor:
        start, count = tokens.starts[0], tokens.query_lens[0]
        assert start == self._length, "reads on where the row ends"
        assert start + count <= min(self.capacity, self.max_len)
        self._length = start + count
        self.passes.append((start, tokens.token_ids.tolist()))
        return torch.full((count, 1), float(count > 1))

    def head(self, hidden: Tensor) -> Tensor:
        assert len(hidden) == 1, "one position is compared"
        return torch.tensor([[2.0, 2.0 - self.gap, 0.5 + self.rounding * hidden[0, 0].item(), -1.0]])

    def valid_len(self, row: int) -> int:
        return self._length

    def truncate(self, row: int, length: int) -> None:
        assert length <= self._length
        self._length = length


def checker(decoder: FakeDecoder, dtype: torch.dtype = torch.bfloat16, k: int = 3) -> OutputChecker:
    return OutputChecker(decoder, dtype, num_draft_tokens=k, prefill_chunk=2)


@pytest.mark.parametrize(
    ("expected", "actual", "position"),
    [([1, 2, 3], [1, 2, 3], None), ([], [], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([], [4], 0)],
)
def test_first_difference(expected: Sequence[int], actual: Sequence[int], position: int | None) -> None:
    assert first_difference(expected, actual) == position


@pytest.mark.parametrize(
    ("gap", "rounding", "near_tie"), [(0.5, 0.25, True), (0.5, 0.125, False), (0.0, 0.0, True)]
)
def test_a_near_tie_has_a_gap_of_at_most_twice_the_rounding(
    gap: float, rounding: float, near_tie: bool
) -> None:
    found = checker(FakeDecoder(gap, rounding)).compare([3, 3], [2, 0, 2], [2, 1, 2])
    assert found == Difference(1, gap, rounding, near_tie)


def test_in_float32_nothing_is_a_near_tie() -> None:
    found = checker(FakeDecoder(0.5, 0.25), torch.float32).compare([3], [0], [1])
    assert found == Difference(0, 0.5, 0.25, near_tie=False)


def test_the_two_passes_reread_the_newest_token() -> None:
    decoder = FakeDecoder(0.5, 0.25)
    checker(decoder).compare([3, 3, 3], [2, 0, 2], [2, 1, 2])
    assert decoder.passes == [(0, [3, 3]), (2, [3]), (3, [2]), (3, [2, 0, 0, 0])]
    assert decoder.valid_len(0) == 0, "the row is left empty for the engine"


def test_a_prompt_of_one_token_has_nothing_to_read_before() -> None:
    decoder = FakeDecoder(0.5, 0.25)
    checker(decoder).compare([3], [0], [1])
    assert decoder.passes == [(0, [3]), (0, [3, 0, 0, 0])]


@pytest.mark.parametrize("limit", ["capacity", "max_len"])
def test_the_wide_pass_stays_within_the_context(limit: str) -> None:
    decoder = FakeDecoder(0.5, 0.25, **{limit: 4})
    assert checker(decoder).compare([3, 3], [2, 0], [2, 1]) == Difference(1, 0.5, 0.25, near_tie=True)
    assert decoder.passes[-1] == (2, [2, 0])


def test_equal_outputs_need_no_pass() -> None:
    decoder = FakeDecoder(0.5, 0.25)
    assert checker(decoder).compare([3], [1, 2], [1, 2]) is None
    assert decoder.passes == []


def test_an_output_that_merely_ends_earlier_is_no_near_tie() -> None:
    """The tokens are the same, so their logits cannot be what differs."""
    assert checker(FakeDecoder(0.0, 1.0)).compare([3], [1, 2], [1]) == Difference(1, None, None, False)


def test_the_worst_difference_decides() -> None:
    near, far = Difference(4, 0.1, 0.2, near_tie=True), Difference(2, 9.0, 0.2, near_tie=False)
    assert judge([None, None]).outputs_equal is True
    assert judge([]).outputs_equal is True
    verdict = judge([None, near, None, far, near])
    assert (verdict.outputs_equal, verdict.prompt_number, verdict.difference) == (False, 3, far)
    verdict = judge([None, near, near])
    assert (verdict.outputs_equal, verdict.prompt_number, verdict.difference) == ("near_tie", 1, near)


def test_the_gap_is_the_targets_own(toy_model: LlamaForCausalLM, toy_target: Target) -> None:
    """Against transformers on the same weights; float32 sums differ in the last bits."""
    decoder = SlotDecoder(toy_target.prepared, 2, 64, 256, toy_target.vocab_size)
    prefix = list(range(5, 40))
    with torch.inference_mode():
        logits = toy_model(torch.tensor([prefix])).logits[0, -1]
    gap, rounding = OutputChecker(decoder, torch.float32, 5, prefill_chunk=16).measure(prefix, 11, 70)
    assert gap == pytest.approx(abs(logits[11] - logits[70]).item(), abs=1e-4)
    assert rounding < 1e-4
    assert decoder.valid_len(0) == 0
