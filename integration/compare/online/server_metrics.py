"""What a server's Prometheus page says about its drafts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from foredraft.integration.compare.online.endpoint import Endpoint
from foredraft.integration.compare.online.http_stream import FAULTS, get_text

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_POSITION = re.compile(r'(?:^|,)position="(\d+)"')
_NAMES = {
    "drafts": re.compile(r"spec_decode_num_drafts(_total)?$"),
    "drafted": re.compile(r"spec_decode_num_draft_tokens(_total)?$"),
    "accepted": re.compile(r"spec_decode_num_accepted_tokens(_total)?$"),
    "per_position": re.compile(r"spec_decode_num_accepted_tokens_per_pos(_total)?$"),
    "created": re.compile(r"spec_decode_num_draft_tokens_created$"),
}
MAX_POSITIONS = 256


@dataclass(frozen=True)
class DraftCounts:
    """Since the server began, or between two looks.

    Attributes:
        drafted: tokens; so it is for ``accepted``.
        drafts: how often something was drafted; ``None`` where the server does not tell.
        per_position: accepted tokens per place in the draft; empty where the server does not tell.
        created: when the counters began, where the server tells.
    """

    drafted: float
    accepted: float
    drafts: float | None = None
    per_position: tuple[float, ...] = ()
    created: float | None = None


def read_counts(endpoint: Endpoint, timeout_s: float) -> DraftCounts | None:
    """The counters, summed over engines; ``None`` where the server shows none."""
    try:
        return parse_counts(get_text(endpoint, "/metrics", timeout_s))
    except FAULTS:
        return None


def parse_counts(page: str) -> DraftCounts | None:
    """The counters of a page; vLLM's names, whatever stands before them. ``None`` without them."""
    found: dict[str, list[tuple[str, float]]] = {key: [] for key in _NAMES}
    for line in page.splitlines():
        sample = _SAMPLE.match(line)
        for key, name in _NAMES.items():
            if sample is not None and name.search(sample.group(1)):
                found[key].append((sample.group(2) or "", _value(sample.group(3))))
    drafted, accepted = _sum(found["drafted"]), _sum(found["accepted"])
    if drafted is None or accepted is None:
        return None
    per_position = _per_position(found["per_position"])
    return DraftCounts(drafted, accepted, _sum(found["drafts"]), per_position, _sum(found["created"]))


def counts_between(before: DraftCounts | None, after: DraftCounts | None) -> DraftCounts | None:
    """What was drafted in between; ``None`` where it cannot be known.

    So it is without metrics, when the counters began anew or went back, and when more was accepted than
    drafted, which no server means. Drafts and places are left out where they alone make no sense.
    """
    if before is None or after is None or before.created != after.created:
        return None
    drafted, accepted = after.drafted - before.drafted, after.accepted - before.accepted
    if drafted < 0 or accepted < 0 or accepted > drafted:
        return None
    drafts = None if before.drafts is None or after.drafts is None else after.drafts - before.drafts
    if drafts is None or not 0 <= drafts <= drafted:
        return DraftCounts(drafted, accepted)
    earlier = before.per_position + (0.0,) * (len(after.per_position) - len(before.per_position))
    places = [now - then for now, then in zip(after.per_position, earlier, strict=False)]
    return DraftCounts(drafted, accepted, drafts, tuple(places) if _fit(places, drafts, accepted) else ())


def _fit(places: Sequence[float], drafts: float, accepted: float) -> bool:
    """Whether the places can be: each is reached by way of the one before, and all together are the accepted
    tokens, so that they say the same as the acceptance length."""
    falls = all(later <= earlier for earlier, later in pairwise([drafts, *places]))
    return falls and all(count >= 0 for count in places) and math.isclose(sum(places), accepted)


def added(counts: Sequence[DraftCounts]) -> DraftCounts | None:
    """Of several spans together; ``None`` of nothing. What one of them does not tell is not told."""
    if not counts:
        return None
    drafts = [one.drafts for one in counts]
    known = [value for value in drafts if value is not None]
    length = max(len(one.per_position) for one in counts)
    tells_places = all(one.per_position or not one.drafted for one in counts)
    padded = [one.per_position + (0.0,) * (length - len(one.per_position)) for one in counts]
    return DraftCounts(
        drafted=sum(one.drafted for one in counts),
        accepted=sum(one.accepted for one in counts),
        drafts=sum(known) if len(known) == len(drafts) else None,
        per_position=tuple(sum(column) for column in zip(*padded, strict=True)) if tells_places else (),
    )


def _value(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _sum(samples: Sequence[tuple[str, float]]) -> float | None:
    """``None`` of nothing, and of what no counter can be."""
    values = [value for _, value in samples]
    return sum(values) if values and all(math.isfinite(one) and one >= 0 for one in values) else None


def _per_position(samples: Sequence[tuple[str, float]]) -> tuple[float, ...]:
    if _sum(samples) is None:
        return ()
    totals: dict[int, float] = {}
    for labels, value in samples:
        place = _POSITION.search(labels)
        if place is None or int(place.group(1)) >= MAX_POSITIONS:
            return ()
        totals[int(place.group(1))] = totals.get(int(place.group(1)), 0.0) + value
    return tuple(totals.get(place, 0.0) for place in range(max(totals) + 1))
