"""Costs that do not hang on the machine, for the controller of a vLLM engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foredraft.scheduler.speculation import StepReport


def made_up_clock(drafter: Any, token_s: float = 0.01, draft_s: float = 0.02) -> list[StepReport]:
    """Costs that do not hang on the machine; the reports are kept as they were measured."""
    reports: list[StepReport] = []
    learn = drafter.lengths.controller.observe

    def observe(report: StepReport) -> None:
        reports.append(report)
        propose_s = [draft_s * max(report.choice.lengths)] * len(report.propose_s)
        target_s = 1 + token_s * report.num_tokens
        step_s = target_s + sum(propose_s)
        learn(replace(report, propose_s=propose_s, target_s=target_s, step_s=step_s))

    drafter.lengths.controller.observe = observe
    return reports
