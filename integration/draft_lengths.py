"""How many tokens a configuration lets each proposer draft: a number, or the most that may be chosen."""

from __future__ import annotations

from collections.abc import Iterable

from foredraft.integration.config import AUTO, Config, fixed_draft_tokens

NGRAM_DRAFT_TOKENS = 8
"""Drafted per step where neither the configuration nor a trained file says: right for ``ngram``."""

MODEL_DRAFT_TOKENS = 4
"""For a whole model as draft, or a model's own head: what its acceptance will be is not known."""

AUTO_DRAFT_TOKENS = 16
AUTO_MODEL_DRAFT_TOKENS = 8
"""The most that is chosen where the number is open; the second where every token drafted costs a pass."""

WITH_A_MODEL = ("draft", "early_exit")


def adapts(config: Config) -> bool:
    """Whether lengths are chosen step by step: when asked for, and always where several proposers share."""
    return config.num_draft_tokens == AUTO or config.proposer == AUTO or "," in config.proposer


def most_chosen(name: str, config: Config) -> int:
    """The largest length that is chosen for a proposer where lengths are chosen."""
    default = AUTO_MODEL_DRAFT_TOKENS if name in WITH_A_MODEL else AUTO_DRAFT_TOKENS
    return fixed_draft_tokens(config) or default


def most_draft_tokens(config: Config, names: Iterable[str], own: int) -> int:
    """Tokens drafted per request and step at most.

    Args:
        names: of the proposers that draft.
        own: the number where none is configured and lengths are not chosen.
    """
    if adapts(config):
        return max((most_chosen(name, config) for name in names), default=AUTO_DRAFT_TOKENS)
    return fixed_draft_tokens(config) or own
