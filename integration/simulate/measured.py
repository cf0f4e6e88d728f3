"""Costs and acceptance from the document that ``foredraft align --json`` wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

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
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{OPTION}: {str(path)!r} is no result of foredraft align ({error})") from None
    chosen = next(iter(by_temperature)) if temperature is None and by_temperature else temperature
    if chosen not in by_temperature:
        known = ", ".join(map(str, by_temperature))
        raise UserError(f"--temperature: {path} has results at {known or 'no temperature'}, got {chosen}")
    result = by_temperature[chosen]
    costs, acceptance = result["costs"], result["overall"]["position_acceptance"]
    if costs is None or not acceptance:
        raise UserError(f"{OPTION}: {path} has no costs or no acceptance at temperature {chosen}")
    step_s = [whole - draft for whole, draft in zip(costs["step_s"], costs["draft_s"], strict=True)]
    most = len(step_s) - 1
    padded = [*acceptance, *[acceptance[-1]] * most][:most]
    return Measured(costs["batch_size"], step_s, costs["draft_s"]), padded
