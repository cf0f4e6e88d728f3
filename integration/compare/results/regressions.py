"""Two results of different runs: what got worse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from foredraft.integration.compare.results.model import Regression, ResultDocument, ResultRow
from foredraft.integration.errors import UserError


def read_result(path: Path) -> ResultDocument:
    """A result that ``--json`` wrote.

    Raises:
        UserError: it cannot be read, or is no result of this version.
    """
    try:
        return ResultDocument.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"--baseline: {str(path)!r}: {error.strerror}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(str(part) for part in fault["loc"])
        raise UserError(
            f"--baseline: {str(path)!r} is no result of this version of compare: {field}: {fault['msg']}"
        ) from None


def regressions(before: Sequence[ResultRow], now: Sequence[ResultRow]) -> list[Regression]:
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


def num_common(before: Sequence[ResultRow], now: Sequence[ResultRow]) -> int:
    """How many rows can be compared."""
    return len({_key(row) for row in before} & {_key(row) for row in now})


def _worse(before: ResultRow, now: ResultRow) -> list[str]:
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


def _regression(before: ResultRow, now: ResultRow, what: str) -> Regression:
    return Regression.model_validate(
        {
            "config": now.config,
            "workload": now.workload,
            "batch_size": now.batch_size,
            "temperature": now.temperature,
            "what": what,
            "before": before.speedup,
            "now": now.speedup,
        }
    )


def _key(row: ResultRow) -> tuple[str, str, int, float]:
    return row.config, row.workload, row.batch_size, row.temperature
