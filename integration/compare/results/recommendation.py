"""The advice: which configuration to run for this traffic, and what would change that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.integration.compare.results.model import OverallRow, ResultRow, Speedup
from foredraft.integration.compare.variants import BASELINE

MAX_EXCEPTIONS = 3

Condition = tuple[int, float]
"""Batch size and temperature."""


@dataclass(frozen=True)
class _Choice:
    """What to run under one condition; ``best`` is ``None`` where nothing was faster."""

    condition: Condition
    best: ResultRow | OverallRow | None
    rivals: list[str]


def recommendation(rows: Sequence[ResultRow], overall: Sequence[OverallRow]) -> str:
    """One paragraph.

    Args:
        rows: of all cells.
        overall: over the workloads; empty where there is only one.
    """
    rated: Sequence[ResultRow | OverallRow] = overall or [row for row in rows if row.config != BASELINE]
    if not rated:
        return "Nothing was compared with plain decoding, so there is no advice."
    wrong = list(dict.fromkeys(row.config for row in rows if row.verdict == "output differs"))
    choices = _choices([row for row in rated if row.config not in wrong])
    sentences = [_advice(choice, rows) for choice in choices]
    if overall:
        sentences += _exceptions(choices, [row for row in rows if row.config not in wrong])
    sentences += [f"Do not run {name}: its output differs from that of plain decoding." for name in wrong]
    sentences.append(_limits(choices, rows))
    return " ".join(sentences)


def _choices(rated: Sequence[ResultRow | OverallRow]) -> list[_Choice]:
    by_condition: dict[Condition, list[ResultRow | OverallRow]] = {}
    for row in rated:
        by_condition.setdefault((row.batch_size, row.temperature), []).append(row)
    return [_choice(condition, chosen) for condition, chosen in by_condition.items()]


def _choice(condition: Condition, rated: Sequence[ResultRow | OverallRow]) -> _Choice:
    faster = [row for row in rated if row.verdict == "faster"]
    if not faster:
        return _Choice(condition, None, [])
    best = max(faster, key=lambda row: row.speedup)
    rivals = [row.config for row in faster if row is not best and _overlap(row, best)]
    return _Choice(condition, best, rivals)


def _overlap(one: Speedup, best: Speedup) -> bool:
    assert one.speedup_high is not None, "faster has an interval"
    assert best.speedup_low is not None, "faster has an interval"
    return one.speedup_high >= best.speedup_low


def _advice(choice: _Choice, rows: Sequence[ResultRow]) -> str:
    where = _where(choice.condition)
    if choice.best is None:
        return f"{where}, nothing was shown to be faster than plain decoding: run {BASELINE}."
    text = f"{where}, run {_named(choice.best, rows)}: {_gain(choice.best)} the tokens/s of plain decoding"
    if isinstance(choice.best, OverallRow):
        text += f" over {choice.best.num_workloads} workloads"
    if choice.rivals:
        text += f"; {' and '.join(choice.rivals)} cannot be told apart from it"
    return text + "."


def _exceptions(choices: Sequence[_Choice], rows: Sequence[ResultRow]) -> list[str]:
    """Where another configuration is clearly better for one workload; those that gain most are named."""
    found: list[tuple[float, ResultRow]] = []
    for choice in choices:
        chosen = choice.best.config if choice.best else BASELINE
        cells = [row for row in rows if (row.batch_size, row.temperature) == choice.condition]
        for workload in dict.fromkeys(row.workload for row in cells):
            here = {row.config: row for row in cells if row.workload == workload}
            better = _clearly_better(here.get(chosen), list(here.values()))
            if better is not None:
                found.append((better.speedup / here[chosen].speedup, better))
    found.sort(key=lambda pair: -pair[0])
    sentences = [_exception(better, rows) for _, better in found[:MAX_EXCEPTIONS]]
    if len(found) > MAX_EXCEPTIONS:
        sentences.append(f"So it is for {len(found) - MAX_EXCEPTIONS} more, see the table.")
    return sentences


def _exception(better: ResultRow, rows: Sequence[ResultRow]) -> str:
    where = f"{better.workload} alone, at batch {better.batch_size} and temperature {better.temperature:g},"
    if better.config == BASELINE:
        return f"For {where} plain decoding is faster than that."
    return f"For {where} {_named(better, rows)} is faster than that: {_gain(better)}."


def _clearly_better(own: ResultRow | None, here: Sequence[ResultRow]) -> ResultRow | None:
    """The best of those whose interval lies above that of ``own``."""
    if own is None or own.speedup_high is None:
        return None
    known = [(row.speedup_low, row) for row in here if row.speedup_low is not None]
    better = [row for low, row in known if low > own.speedup_high]
    return max(better, key=lambda row: row.speedup, default=None)


def _limits(choices: Sequence[_Choice], rows: Sequence[ResultRow]) -> str:
    """What the advice hangs on, and what was not looked at."""
    batch_sizes = dict.fromkeys(row.batch_size for row in rows)
    temperatures = dict.fromkeys(row.temperature for row in rows)
    texts = []
    if len({choice.best.config if choice.best else BASELINE for choice in choices}) > 1:
        texts.append("The advice changes with the load, as said")
    if len(batch_sizes) == 1:
        texts.append("Other batch sizes were not measured; larger ones leave less to gain")
    if len(temperatures) == 1:
        texts.append("Other temperatures were not measured; drafts are accepted less often as it rises")
    return ". ".join([*texts, "Other prompts may be accepted otherwise: measure yours"]) + "."


def _where(condition: Condition) -> str:
    return f"At batch {condition[0]} and temperature {condition[1]:g}"


def _named(row: ResultRow | OverallRow, rows: Sequence[ResultRow]) -> str:
    tokens = max(one.num_draft_tokens for one in rows if one.config == row.config)
    return row.config if row.config == BASELINE else f"{row.config} with K = {tokens}"


def _gain(row: Speedup) -> str:
    if row.speedup_low is None or row.speedup_high is None:
        return f"{row.speedup:.2f}x"
    return f"{row.speedup:.2f}x ({row.speedup_low:.2f} to {row.speedup_high:.2f})"
