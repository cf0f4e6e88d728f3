"""``auto`` drafts ahead where that makes a target's steps shorter, and nowhere else."""

from __future__ import annotations

import random

import pytest

from foredraft.proposers.remote_messages import DraftAhead
from foredraft.scheduler.draft_server.ahead_policy import AheadPolicy


def share_ahead(policy: AheadPolicy, seconds: dict[bool, float], steps: int, noise: float = 0.2) -> float:
    """How many of ``steps`` ran ahead, when a step takes ``seconds`` with and without."""
    draw = random.Random(1)
    ahead = 0
    for _ in range(steps):
        ahead += policy.wants
        policy.note_step(seconds[policy.wants] * draw.uniform(1 - noise, 1 + noise))
    return ahead / steps


@pytest.mark.parametrize(("with_ahead", "low", "high"), [(0.008, 0.9, 1.0), (0.012, 0.0, 0.1)])
def test_auto_does_what_is_faster(with_ahead: float, low: float, high: float) -> None:
    policy = AheadPolicy("auto")
    share_ahead(policy, {False: 0.010, True: with_ahead}, 100)
    assert low <= share_ahead(policy, {False: 0.010, True: with_ahead}, 1000) <= high


def test_auto_notices_when_it_begins_to_pay() -> None:
    policy = AheadPolicy("auto")
    share_ahead(policy, {False: 0.010, True: 0.015}, 300)
    share_ahead(policy, {False: 0.010, True: 0.006}, 600)
    assert share_ahead(policy, {False: 0.010, True: 0.006}, 200) > 0.8


def test_probes_get_rare() -> None:
    """Eight steps in about five hundred, where ahead-drafting always loses."""
    policy = AheadPolicy("auto")
    share_ahead(policy, {False: 0.010, True: 0.015}, 2000)
    assert share_ahead(policy, {False: 0.010, True: 0.015}, 4000) < 0.03


@pytest.mark.parametrize("mode", ["on", "off"])
def test_on_and_off_stay(mode: DraftAhead) -> None:
    assert share_ahead(AheadPolicy(mode), {False: 0.01, True: 0.01}, 50) == (mode == "on")


def test_no_data_is_no_rate() -> None:
    policy = AheadPolicy("on")
    assert policy.hit_rate is None
    policy.note_outcome(True)
    policy.note_outcome(False)
    assert policy.hit_rate == 0.5
