"""The advice: which configuration to run for this traffic, and what would change that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.integration.compare.results.base import (
    CellRow,
    ComparedRow,
    HeadToHead,
    ManyWorkloadsRow,
    Speedup,
)

MAX_EXCEPTIONS = 3


@dataclass(frozen=True)
class Words:
    """How the advice calls things.

    Attributes:
        baseline: what all is compared with, in a sentence.
        baseline_name: what to run where nothing is faster.
        speed: what the speedup is of.
        loads: what other loads are called.
        labels: what else belongs to a name, such as its K.
    """

    baseline: str
    baseline_name: str
    speed: str
    loads: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def label(self, name: str) -> str:
        """The name and what belongs to it."""
        return self.labels.get(name, name)


Conditions = tuple[str, ...]
"""Load and temperature, in words."""


@dataclass(frozen=True)
class _Choice:
    """What to run under one condition; ``best`` is ``None`` where nothing was faster, or nothing is known."""

    conditions: Conditions
    best: ComparedRow | None
    rivals: list[str]
    is_known: bool = True


def recommendation(
    rows: Sequence[CellRow],
    overall: Sequence[ManyWorkloadsRow],
    pairs: Sequence[HeadToHead],
    words: Words,
) -> str:
    """One paragraph.

    Args:
        rows: of all cells.
        overall: over the workloads; empty where there is only one.
        pairs: who beats whom.
    """
    rated: Sequence[ComparedRow] = overall or [row for row in rows if not row.is_baseline and row.num_blocks]
    if not rated:
        return f"Nothing could be compared with {words.baseline}, so there is no advice."
    wrong = list(dict.fromkeys(row.name for row in rows if row.verdict == "output differs"))
    choices = _choices([row for row in rated if row.name not in wrong], _beaten(pairs))
    sentences = [_advice(choice, words) for choice in choices]
    if overall:
        sentences += _exceptions(choices, [row for row in rows if row.name not in wrong], words)
    sentences += [f"Do not run {name}: its output differs from that of {words.baseline}." for name in wrong]
    sentences.append(_limits(choices, rows, words))
    return " ".join(sentences)


Beaten = Collection[tuple[Conditions, str, str]]
"""Under which conditions who is slower than whom."""


def _beaten(pairs: Sequence[HeadToHead]) -> Beaten:
    found = set()
    for pair in pairs:
        if pair.verdict == "slower":
            found.add((tuple(pair.conditions), pair.config, pair.against))
        if pair.verdict == "faster":
            found.add((tuple(pair.conditions), pair.against, pair.config))
    return found


def _choices(rated: Sequence[ComparedRow], beaten: Beaten) -> list[_Choice]:
    by_conditions: dict[Conditions, list[ComparedRow]] = {}
    for row in rated:
        by_conditions.setdefault(row.conditions, []).append(row)
    return [_choice(conditions, chosen, beaten) for conditions, chosen in by_conditions.items()]


def _choice(conditions: Conditions, rated: Sequence[ComparedRow], beaten: Beaten) -> _Choice:
    """The best of those that no other one beats; who is not beaten by it either is a rival."""
    faster = [row for row in rated if row.verdict == "faster"]
    if not faster:
        return _Choice(conditions, None, [], is_known=any(row.verdict != "too few blocks" for row in rated))
    unbeaten = [
        row for row in faster if not any((conditions, row.name, one.name) in beaten for one in faster)
    ]
    best = max(unbeaten or faster, key=lambda row: row.speedup)
    rivals = [
        row.name for row in faster if row is not best and (conditions, row.name, best.name) not in beaten
    ]
    return _Choice(conditions, best, rivals)


def _advice(choice: _Choice, words: Words) -> str:
    where = f"At {' and '.join(choice.conditions)}"
    if not choice.is_known:
        return f"{where}, too few blocks were measured to tell anything: measure longer."
    if choice.best is None:
        best = words.label(words.baseline_name)
        return f"{where}, nothing was shown to be faster than {words.baseline}: run {best}."
    best = words.label(choice.best.name)
    text = f"{where}, run {best}: {_gain(choice.best)} {words.speed} of {words.baseline}"
    if isinstance(choice.best, ManyWorkloadsRow):
        text += f" over {choice.best.num_workloads} workloads"
    if choice.rivals:
        text += f"; {' and '.join(choice.rivals)} cannot be told apart from it"
    return text + "."


def _exceptions(choices: Sequence[_Choice], rows: Sequence[CellRow], words: Words) -> list[str]:
    """Where another configuration is clearly better for one workload; those that gain most are named."""
    found: list[tuple[float, CellRow]] = []
    for choice in choices:
        chosen = choice.best.name if choice.best else words.baseline_name
        cells = [row for row in rows if row.conditions == choice.conditions]
        for workload in dict.fromkeys(row.workload for row in cells):
            here = {row.name: row for row in cells if row.workload == workload}
            better = _clearly_better(here.get(chosen), list(here.values()))
            if better is not None:
                found.append((better.speedup / here[chosen].speedup, better))
    found.sort(key=lambda pair: -pair[0])
    sentences = [_exception(better, words) for _, better in found[:MAX_EXCEPTIONS]]
    if len(found) > MAX_EXCEPTIONS:
        sentences.append(f"So it is for {len(found) - MAX_EXCEPTIONS} more, see the table.")
    return sentences


def _exception(better: CellRow, words: Words) -> str:
    where = f"{better.workload} alone, at {' and '.join(better.conditions)},"
    if better.is_baseline:
        return f"For {where} {words.baseline} is faster than that."
    return f"For {where} {words.label(better.name)} is faster than that: {_gain(better)}."


def _clearly_better(own: CellRow | None, here: Sequence[CellRow]) -> CellRow | None:
    """The best of those whose interval lies above that of ``own``."""
    if own is None or own.speedup_high is None:
        return None
    known = [(row.speedup_low, row) for row in here if row.speedup_low is not None]
    better = [row for low, row in known if low > own.speedup_high]
    return max(better, key=lambda row: row.speedup, default=None)


def _limits(choices: Sequence[_Choice], rows: Sequence[CellRow], words: Words) -> str:
    """What the advice hangs on, and what was not looked at."""
    temperatures = {row.temperature for row in rows}
    texts = []
    if len({choice.best.name if choice.best else words.baseline_name for choice in choices}) > 1:
        texts.append("The advice changes with the load, as said")
    if len({row.load for row in rows}) == 1:
        texts.append(f"Other {words.loads} were not measured; larger ones leave less to gain")
    if len(temperatures) == 1 and None not in temperatures:
        texts.append("Other temperatures were not measured; drafts are accepted less often as it rises")
    return ". ".join([*texts, "Other prompts may be accepted otherwise: measure yours"]) + "."


def _gain(row: Speedup) -> str:
    if row.speedup_low is None or row.speedup_high is None:
        return f"{row.speedup:.2f}x"
    return f"{row.speedup:.2f}x ({row.speedup_low:.2f} to {row.speedup_high:.2f})"
