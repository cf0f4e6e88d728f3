from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from foredraft.integration.compare.offline.blocks import blocks_in_passes, cell_blocks, cut_blocks, turns
from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.config import Config

MakePlan = Callable[..., ComparePlan]


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


def test_a_pass_serves_every_prompt_equally_often_in_random_order(make_plan: MakePlan) -> None:
    plan, cell = make_plan(), Cell("toy", 1, 0.5)
    prompts = [Prompt(name, [1]) for name in "abcdef"]
    stream = cell_blocks(plan, cell, prompts)
    blocks = [next(stream) for _ in range(18)]
    order = "".join(request.prompt.prompt_id for block in blocks for request in block)
    names = [order[:6], order[6:12], order[12:]]
    assert [sorted(part) for part in names] == [list("abcdef")] * 3
    assert len({"abcdef", *names}) == 4, "shuffled anew each time"
    seeds = [request.params.seed for block in blocks for request in block]
    assert seeds == list(range(18))
    assert {request.params.temperature for block in blocks for request in block} == {0.5}


def test_few_prompts_are_repeated_until_they_fill_a_batch(make_plan: MakePlan) -> None:
    block = next(cell_blocks(make_plan(), Cell("toy", 5, 0.0), [Prompt("a", [1]), Prompt("b", [2])]))
    assert Counter(request.prompt.prompt_id for request in block) == {"a": 3, "b": 3}


def test_the_same_seed_gives_the_same_blocks_and_turns(make_plan: MakePlan) -> None:
    cell, prompts = Cell("toy", 2, 0.0), [Prompt(name, [1]) for name in "abcdef"]

    def sequence(plan: ComparePlan, chosen: Cell) -> list[object]:
        stream = cell_blocks(plan, chosen, prompts)
        return [([one.prompt.prompt_id for one in next(stream)], turns(plan, chosen, n)) for n in range(12)]

    plan = make_plan("ngram,draft")
    other_seed = replace(plan, configs={"none": Config(engine={"seed": 1}), **plan.without({"none"}).configs})
    assert sequence(plan, cell) == sequence(plan, cell)
    assert sequence(plan, cell) != sequence(plan, Cell("toy", 2, 0.5))
    assert sequence(plan, cell) != sequence(other_seed, cell)


def test_turns_are_random_and_then_reversed(make_plan: MakePlan) -> None:
    plan, cell = make_plan("ngram,draft"), Cell("toy", 1, 0.0)
    orders = [turns(plan, cell, number) for number in range(400)]
    assert all(second == first[::-1] for first, second in zip(orders[::2], orders[1::2], strict=True))
    firsts = Counter(order[0] for order in orders)
    assert set(firsts) == {"none", "ngram", "draft"}
    # 133 expected, standard deviation below 10.
    assert all(85 < count < 185 for count in firsts.values())


@pytest.mark.parametrize(
    ("batch_size", "num_prompts", "num_times", "num_blocks"),
    [(1, 6, 1, 6), (1, 6, 2, 12), (4, 6, 1, 1), (5, 2, 1, 1), (5, 2, 4, 2)],
)
def test_a_fixed_design_is_whole_passes(
    batch_size: int, num_prompts: int, num_times: int, num_blocks: int
) -> None:
    prompts = [Prompt(str(number), [1]) for number in range(num_prompts)]
    assert blocks_in_passes(Cell("toy", batch_size, 0.0), prompts, num_times) == num_blocks
