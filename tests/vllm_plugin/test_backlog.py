"""Passes that wait for trained layers to read them. Needs no vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from foredraft.integration.vllm.paged.backlog import MOST_TOKENS, MOST_WAITING, Backlog


class States:
    """States one position before: -1 - slot of the token."""

    def before(self, step: Any) -> Tensor:
        return (-1.0 - step.slots)[:, None]


def pass_over(starts: dict[str, int], *, plain: bool = True, kept: int = 1) -> Any:
    """One token of each request; slot and state tell request and position."""
    positions = torch.tensor(list(starts.values()))
    slots = positions + 100 * torch.arange(len(starts))
    return SimpleNamespace(
        request_ids=list(starts),
        starts=list(starts.values()),
        kept=[kept] * len(starts),
        is_plain=plain,
        positions=positions,
        slots=slots,
        hidden=slots[:, None].float(),
    )


def given_of(step: Any) -> Tensor:
    given: Tensor = step.slots[:, None] + 0.5
    return given


def backlog_after(step: Any, states: States | None = None) -> Backlog:
    backlog = Backlog(states)  # type: ignore[arg-type]
    backlog.read_at_once(step)
    return backlog


def test_passes_come_out_in_order_with_the_states_before_them() -> None:
    backlog = backlog_after(pass_over({"a": 4, "b": 9}), States())
    steps = [pass_over({"a": 5 + number, "b": 10 + number}) for number in range(3)]
    for step in steps:
        assert backlog.takes(step)
        given = given_of(step)
        backlog.add(step, given)
        for buffer in (given, step.positions, step.slots, step.hidden):
            buffer.fill_(-7)  # as vLLM does with the next pass
    waiting = backlog.take()
    slots = [5, 110, 6, 111, 7, 112]
    assert waiting.slots.tolist() == slots
    assert waiting.positions.tolist() == [5, 10, 6, 11, 7, 12]
    assert waiting.given[:, 0].tolist() == [slot + 0.5 for slot in slots]
    assert waiting.hidden is not None
    assert waiting.before is not None
    assert waiting.hidden[:, 0].tolist() == slots
    assert waiting.before[:, 0].tolist() == [-6.0, -111.0, *slots[:-2]]
    assert waiting.num_rows == 2
    assert not backlog
    assert backlog.takes(pass_over({"a": 8, "b": 13})), "it goes on behind what was read"


@pytest.mark.parametrize(
    "step",
    [
        pass_over({"a": 6}),
        pass_over({"a": 4}),
        pass_over({"a": 5, "b": 0}),
        pass_over({"b": 5}),
        pass_over({"a": 5}, plain=False),
    ],
    ids=["a gap", "once more", "somebody came", "another", "drafts"],
)
def test_what_may_not_wait(step: Any) -> None:
    backlog = backlog_after(pass_over({"a": 4}))
    assert backlog.takes(pass_over({"a": 5}))
    assert not backlog.takes(step)


def test_the_next_pass_begins_behind_what_was_committed() -> None:
    """Three tokens of a draft stood: the next one lies three places on."""
    backlog = backlog_after(pass_over({"a": 4}, plain=False, kept=3))
    assert not backlog.takes(pass_over({"a": 5}))
    assert backlog.takes(pass_over({"a": 7}))


@pytest.mark.parametrize("num_requests", [1, 5, MOST_TOKENS])
def test_how_much_waits(num_requests: int) -> None:
    backlog = backlog_after(pass_over({str(number): 0 for number in range(num_requests)}))
    position = 1
    while not backlog.is_full:
        step = pass_over({str(number): position for number in range(num_requests)})
        assert backlog.takes(step)
        backlog.add(step, given_of(step))
        position += 1
    assert len(backlog) == min(MOST_WAITING, MOST_TOKENS // num_requests)
    many = pass_over({str(number): 0 for number in range(MOST_TOKENS + 1)})
    assert not backlog_after(many).takes(pass_over({str(number): 1 for number in range(MOST_TOKENS + 1)}))
