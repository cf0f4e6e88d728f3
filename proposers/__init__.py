"""What drafts. Choose a proposer by name; write your own as a class and an entry point."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from foredraft.proposers.base import DraftContext, Outcome, Proposer, ReleaseReason
from foredraft.proposers.decoder import Decoder, DraftDecoder, Tokens

__all__ = [
    "Decoder",
    "DraftContext",
    "DraftDecoder",
    "Outcome",
    "Proposer",
    "ReleaseReason",
    "Tokens",
    "create_proposer",
    "proposer_names",
]

ENTRY_POINT_GROUP = "foredraft.proposers"


def _ngram() -> type[Proposer]:
    from foredraft.proposers.ngram import NgramProposer

    return NgramProposer


def _draft() -> type[Proposer]:
    from foredraft.proposers.draft_model import DraftModelProposer

    return DraftModelProposer


def _early_exit() -> type[Proposer]:
    from foredraft.proposers.early_exit import EarlyExitProposer

    return EarlyExitProposer


# Each import happens when its proposer is chosen, so that what one of them needs is no burden on the others.
_BUILT_IN: dict[str, Callable[[], type[Proposer]]] = {
    "ngram": _ngram,
    "draft": _draft,
    "early_exit": _early_exit,
}


def proposer_names() -> list[str]:
    """Every name ``create_proposer`` knows: "none", the built-in ones, then those of installed plugins."""
    plugins = {entry.name for entry in entry_points(group=ENTRY_POINT_GROUP)}
    return ["none", *_BUILT_IN, *sorted(plugins - {"none", *_BUILT_IN})]


def create_proposer(name: str, options: Mapping[str, Any]) -> Proposer | None:
    """Build the proposer ``name`` with its constructor arguments ``options``; "none" builds nothing.

    Options given with "none" are ignored, so that speculation goes off by changing one word. A plugin
    cannot take over a built-in name.

    Raises:
        ValueError: unknown name, or an option that the proposer does not take or refuses.
        ImportError: a plugin that cannot be imported.
        TypeError: a plugin that is not a class derived from ``Proposer``.
    """
    if name == "none":
        return None
    proposer_class = _BUILT_IN[name]() if name in _BUILT_IN else _load_plugin(name)
    signature = inspect.signature(proposer_class)
    try:
        signature.bind(**options)
    except TypeError as error:
        allowed = ", ".join(signature.parameters) or "none"
        raise ValueError(f"proposer {name!r}: {error}; its options are: {allowed}") from None
    return proposer_class(**options)


def _load_plugin(name: str) -> type[Proposer]:
    found = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not found:
        raise ValueError(f"unknown proposer {name!r}; allowed: {', '.join(proposer_names())}")
    if len(found) > 1:
        raise ValueError(f"proposer {name!r} is offered twice: {', '.join(entry.value for entry in found)}")
    try:
        loaded = found[0].load()
    except (ImportError, AttributeError) as error:
        raise ImportError(f"proposer {name!r} ({found[0].value}) cannot be loaded: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, Proposer)):
        raise TypeError(f"proposer {name!r} ({found[0].value}) must be a class derived from Proposer")
    return loaded
