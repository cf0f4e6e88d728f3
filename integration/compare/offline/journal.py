"""The blocks of a run, kept as they are done, so that a killed run can go on where it was.

One JSON object a line: first what the run measures, then a block each. A line that a kill has cut off counts
as not written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.prompts import Prompt
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.errors import UserError

_BLOCK: TypeAdapter[MeasuredBlock] = TypeAdapter(MeasuredBlock)


def measured_what(
    plan: ComparePlan, prompts: Mapping[str, Sequence[Prompt]], environment: Mapping[str, Any]
) -> dict[str, Any]:
    """What two runs must have in common for their blocks to belong together; the budget is not part of it."""
    return {
        "configs": {name: config.model_dump(mode="json") for name, config in plan.configs.items()},
        "prompts": {
            name: [[one.prompt_id, *one.token_ids] for one in chosen] for name, chosen in prompts.items()
        },
        "batch_sizes": list(plan.batch_sizes),
        "temperatures": list(plan.temperatures),
        "repeats": plan.repeats,
        "min_effect": plan.min_effect,
        "check_law": plan.check_law,
        "seed": plan.seed,
        "environment": dict(environment),
    }


class Journal:
    """The file of one run.

    Args:
        measured: see ``measured_what``.

    Raises:
        UserError: the file is of another run, no journal, or cannot be read or written.
    """

    def __init__(self, path: Path, measured: Mapping[str, Any]) -> None:
        self.finished: dict[tuple[Cell, int], MeasuredBlock] = {}
        self._path = path
        try:
            lines = _whole_lines(path)
            if lines:
                self._read(lines, measured)
            else:
                lines = [json.dumps({"measured": measured}).encode() + b"\n"]
            # Written anew: a line that was cut off must not become the beginning of the next one.
            path.write_bytes(b"".join(lines))
        except OSError as error:
            raise UserError(f"--journal: {str(path)!r}: {error.strerror}") from None

    def add(self, block: MeasuredBlock) -> None:
        """Keep a block; one that is there already is not written again."""
        if (block.cell, block.number) in self.finished:
            return
        self.finished[block.cell, block.number] = block
        with self._path.open("ab") as file:
            file.write(_BLOCK.dump_json(block) + b"\n")

    def _read(self, lines: Sequence[bytes], measured: Mapping[str, Any]) -> None:
        try:
            there = json.loads(lines[0])["measured"]
            blocks = [_BLOCK.validate_json(line) for line in lines[1:]]
        except (ValueError, KeyError, TypeError, ValidationError):
            raise UserError(f"--journal: {str(self._path)!r} is no journal of a comparison") from None
        changed = [name for name in measured if there.get(name) != measured[name]]
        if changed:
            raise UserError(
                f"--journal: {str(self._path)!r} belongs to another comparison ({', '.join(changed)} "
                "differ); give the same options, or another file"
            )
        self.finished = {(block.cell, block.number): block for block in blocks}


def _whole_lines(path: Path) -> list[bytes]:
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines
