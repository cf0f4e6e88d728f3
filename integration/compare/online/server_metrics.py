"""What a server's Prometheus page says about its drafts."""

from __future__ import annotations

import http.client
import math
import re
from dataclasses import dataclass

from foredraft.integration.compare.online.client import StreamError, get_text
from foredraft.integration.compare.online.endpoint import Endpoint

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)")
_DRAFTED = re.compile(r"spec_decode_num_draft_tokens(_total)?$")
_ACCEPTED = re.compile(r"spec_decode_num_accepted_tokens(_total)?$")


@dataclass(frozen=True)
class DraftCounts:
    """Since the server began."""

    drafted: float
    accepted: float


def read_counts(endpoint: Endpoint, timeout_s: float) -> DraftCounts | None:
    """The counters, summed over engines; ``None`` where the server shows none."""
    try:
        return parse_counts(get_text(endpoint, "/metrics", timeout_s))
    except (OSError, http.client.HTTPException, StreamError):
        return None


def parse_counts(page: str) -> DraftCounts | None:
    """The counters of a page; vLLM's names, whatever stands before them. ``None`` without them."""
    drafted, accepted = _sum(page, _DRAFTED), _sum(page, _ACCEPTED)
    if drafted is None or accepted is None:
        return None
    return DraftCounts(drafted, accepted)


def acceptance_between(before: DraftCounts | None, after: DraftCounts | None) -> tuple[float, float] | None:
    """(drafted, accepted) in between; ``None`` where it cannot be known.

    So it is without metrics, when the counters went back because the server began anew, and when more was
    accepted than drafted, which no server means.
    """
    if before is None or after is None:
        return None
    drafted, accepted = after.drafted - before.drafted, after.accepted - before.accepted
    if drafted < 0 or accepted < 0 or accepted > drafted:
        return None
    return drafted, accepted


def _sum(page: str, name: re.Pattern[str]) -> float | None:
    values = []
    for line in page.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or not name.search(sample.group(1)):
            continue
        try:
            values.append(float(sample.group(2)))
        except ValueError:
            return None
    total = sum(values)
    return total if values and math.isfinite(total) and total >= 0 else None
