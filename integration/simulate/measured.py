"""Costs and acceptance from the document that ``foredraft align --json`` wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foredraft.integration.errors import UserError
from foredraft.scheduler.hardware_model.cost_model import Measured

OPTION = "--measured"


def read_measured(path: Path, temperature: float | None) -> tuple[Measured, Sequence[float]]:
    """The costs, and acceptance by place.

    Args:
        temperature: of the result wanted; ``None`` = the first.

    Raises:
        UserError: no such file or result, or none with costs.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        by_temperature = {float(result["temperature"]): result for result in results}
        chosen = next(iter(by_temperature), None) if temperature is None else temperature
        found = _measured(by_temperature[chosen]) if chosen in by_temperature else None
    except (OSError, ValueError, LookupError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{OPTION}: {str(path)!r} is no result of foredraft align ({reason})") from None
    if chosen is None:
        raise UserError(f"{OPTION}: {str(path)!r} has no results")
    if chosen not in by_temperature:
        known = ", ".join(map(str, by_temperature))
        raise UserError(f"--temperature: {path} has results at {known}, got {chosen}")
    if found is None:
        raise UserError(f"{OPTION}: {path} has no costs or no acceptance at temperature {chosen}")
    return found


def _measured(result: Any) -> tuple[Measured, Sequence[float]] | None:
    costs, acceptance = result["costs"], result["overall"]["position_acceptance"]
    if costs is None or not acceptance:
        return None
    step_s = [whole - draft for whole, draft in zip(costs["step_s"], costs["draft_s"], strict=True)]
    most = len(step_s) - 1
    padded = [*acceptance, *[acceptance[-1]] * most][:most]
    return Measured(costs["batch_size"], step_s, costs["draft_s"]), padded
