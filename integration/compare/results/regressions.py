"""Two results of different runs: what got worse."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from foredraft.integration.compare.results.base import CellRow, Part, Regression
from foredraft.integration.errors import UserError

Document = TypeVar("Document", bound=Part)


def read_result(path: Path, kind: type[Document]) -> Document:
    """A result that ``--json`` wrote.

    Args:
        kind: class of the document; that of the other mode is refused.

    Raises:
        UserError: it cannot be read, or is no result of this version.
    """
    try:
        text = path.read_bytes()
        found = json.loads(text)
    except OSError as error:
        raise UserError(f"--baseline: {str(path)!r}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(f"--baseline: {str(path)!r} is not JSON, so no result that --json wrote") from None
    then, now = _mode(found if isinstance(found, dict) else {}), _mode(kind.model_fields)
    if then not in (None, now):
        raise UserError(f"--baseline: {str(path)!r} is of the other mode: it compares {then}, this run {now}")
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"]) or "as a whole"
        raise UserError(
            f"--baseline: {str(path)!r} is no result of this version of compare: {field}: {fault['msg']}"
        ) from None


def _mode(fields: Container[str]) -> str | None:
    """What a document compares, by its fields; ``None`` where it is none."""
    if "configs" in fields:
        return "configurations"
    return "servers" if "max_tokens" in fields else None


def regressions(before: Sequence[CellRow], now: Sequence[CellRow]) -> list[Regression]:
    """The cells of both runs in which a configuration is worse now.

    Slower means that the two intervals do not meet: of equal speedups that happens less often than one
    interval misses. Speedups are compared, not tokens/s, which another machine or another load changes.
    """
    known = {_key(row): row for row in before}
    return [
        _regression(known[_key(row)], row, what)
        for row in now
        if _key(row) in known
        for what in _worse(known[_key(row)], row)
    ]


def unheld(before: Sequence[CellRow], now: Sequence[CellRow]) -> list[str]:
    """What of the result compared with says nothing about this one, in words."""
    known = {_key(row): row for row in before if not row.is_baseline}
    own = {_key(row): row for row in now if not row.is_baseline}
    common = known.keys() & own.keys()
    few = [key for key in common if known[key].speedup_low is None or own[key].speedup_low is None]
    found = []
    if few:
        found.append(
            f"{len(few)} of {len(common)} cells could not be held against it: too few blocks for an interval"
        )
    if missing := len(known.keys() - common):
        found.append(f"{missing} of its {len(known)} cells were not measured now")
    return found


def check_same_requests(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse to compare results of unequal workloads.

    Args:
        before: fingerprint of the requests, per workload.

    Raises:
        UserError: a workload of the same name held other requests then.
    """
    unequal = [name for name, digest in now.items() if before.get(name, digest) != digest]
    if unequal:
        raise UserError(f"--baseline: workload {unequal[0]!r} held other requests or lengths then")


def num_common(before: Sequence[CellRow], now: Sequence[CellRow]) -> int:
    """How many rows can be compared."""
    return len({_key(row) for row in before} & {_key(row) for row in now})


def _worse(before: CellRow, now: CellRow) -> list[str]:
    if before.num_blocks and not now.num_blocks:
        return ["cannot be compared now"]
    found = []
    if now.verdict == "output differs" and before.verdict != "output differs":
        found.append("output differs now")
    if (
        now.verdict is not None
        and now.speedup_high is not None
        and before.speedup_low is not None
        and now.speedup_high < before.speedup_low
    ):
        found.append("slower than before")
    return found


def _regression(before: CellRow, now: CellRow, what: str) -> Regression:
    values = {
        "config": now.name,
        "workload": now.workload,
        "conditions": list(now.conditions),
        "what": what,
        "before": before.speedup,
        "now": now.speedup if now.num_blocks else None,
    }
    return Regression.model_validate(values)


def _key(row: CellRow) -> tuple[str, ...]:
    return row.name, row.workload, *row.conditions
