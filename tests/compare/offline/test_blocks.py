from collections import Counter

import pytest

from foredraft.integration.compare.offline.blocks import cut_blocks, rotated


@pytest.mark.parametrize(
    ("num_items", "batch_size", "sizes"),
    [(3, 1, [1, 1, 1]), (8, 8, [8]), (15, 8, [15]), (17, 8, [8, 9]), (6, 4, [6]), (11, 3, [3, 4, 4])],
)
def test_blocks_fill_a_batch_and_lose_nothing(num_items: int, batch_size: int, sizes: list[int]) -> None:
    blocks = cut_blocks(range(num_items), batch_size)
    assert [len(block) for block in blocks] == sizes
    assert [item for block in blocks for item in block] == list(range(num_items))


def test_too_few_items_are_refused() -> None:
    with pytest.raises(ValueError, match="7 items do not fill a block of 8"):
        cut_blocks(range(7), 8)


def test_every_proposer_goes_first_equally_often() -> None:
    orders = [rotated(["none", "ngram", "mine"], number) for number in range(6)]
    assert orders[:3] == [["none", "ngram", "mine"], ["ngram", "mine", "none"], ["mine", "none", "ngram"]]
    assert Counter(order[0] for order in orders) == {"none": 2, "ngram": 2, "mine": 2}
