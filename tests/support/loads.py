"""Scripted loads for the tests of the controller, in units of a plain step of one request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foredraft.scheduler.speculation import AdaptiveDraftLength, Member
from foredraft.scheduler.speculation.scripted_load import Load, Run, ScriptedMember, play

NEVER_SLOWER = 0.97
WARM_UP = 60

PASSES: dict[str, Callable[[float], float]] = {
    "flat": lambda tokens: 1 + 0.01 * (tokens - 1),
    "steep": lambda tokens: 1 + 0.12 * (tokens - 1),
    "knee": lambda tokens: 1 + 0.01 * (tokens - 1) + 0.08 * max(0.0, tokens - 12),
    "two are dear": lambda tokens: 1 + 0.01 * (tokens - 1) + (0.2 if 1 < tokens < 3 else 0.0),
}
PROPOSERS: dict[str, dict[str, Any]] = {
    "look-up": {"draft_s": (0.002, 0.0)},
    "model": {"draft_s": (0.12, 0.01), "unread_s": 0.005},
}


def member(
    acceptance: Callable[[int, int], float] | float, proposer: str = "look-up", **others: Any
) -> ScriptedMember:
    law = acceptance if callable(acceptance) else lambda step, request: acceptance
    return ScriptedMember(law, **(PROPOSERS[proposer] | others))


def load(
    acceptance: Callable[[int, int], float] | float,
    passes: str = "flat",
    proposer: str = "look-up",
    batch: Callable[[int], int] = lambda step: 1,
    **others: Any,
) -> Load:
    """One member."""
    return Load([member(acceptance, proposer, **others)], batch, PASSES[passes])


def calibrated(script: Load, num_prospects: int = 1) -> AdaptiveDraftLength:
    seconds = {size: script.pass_s(size) for size in (1, 2, 3, 4, 8, 16, 32, 64)}
    return AdaptiveDraftLength(
        [
            Member(str(place), one.max_draft_tokens, num_prospects, one.draft_s[0])
            for place, one in enumerate(script.members)
        ],
        seconds,
    )


def uncalibrated(script: Load) -> AdaptiveDraftLength:
    return AdaptiveDraftLength(
        [Member(str(place), one.max_draft_tokens) for place, one in enumerate(script.members)]
    )


def run_of(script: Load, num_steps: int = 400, seed: int = 0) -> Run:
    return play(script, calibrated(script), num_steps, seed)
