"""What two runs that are compared had apart from their requests: options that changed in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foredraft.integration.compare.variants import BASELINE, SHARED_OPTIONS

RAN_AS = ("engine", "model", "dtype", "device")


def changed_facts(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """How the target ran, where it ran otherwise then, in words."""
    return [
        _told(name, before.get(name), now.get(name)) for name in RAN_AS if before.get(name) != now.get(name)
    ]


def changed_options(
    before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Of configurations of the same name, in words. Requests and the target are compared elsewhere."""
    found = []
    for name in before.keys() & now.keys():
        skipped = set(SHARED_OPTIONS) - ({"engine"} if name == BASELINE else set())
        then, own = _flat(before[name]), _flat(now[name])
        found += [
            _told(f"{name}: {option}", then.get(option), own.get(option))
            for option in sorted(then.keys() | own.keys())
            if option.partition(".")[0] not in skipped and then.get(option) != own.get(option)
        ]
    return sorted(found)


def _told(what: str, then: Any, now: Any) -> str:
    return f"{what} was {then!r} then and is {now!r} now"


def _flat(options: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in options.items():
        inner = value if isinstance(value, Mapping) else None
        flat |= {name: value} if inner is None else {f"{name}.{key}": one for key, one in inner.items()}
    return flat
