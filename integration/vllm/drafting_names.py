"""What drafts in an engine, by a configuration as ``chosen`` has made it; workers read it there."""

from __future__ import annotations

from foredraft.integration.config import AUTO, Config, proposer_names
from foredraft.integration.draft_lengths import NGRAM_DRAFT_TOKENS, most_draft_tokens


def drafting_names(config: Config) -> tuple[str, ...]:
    """The proposers that draft: under ``auto`` those without a model, and those whose model was found."""
    names = proposer_names(config)
    if config.proposer != AUTO:
        return names
    missing = {"draft": config.draft.model is None, "early_exit": config.early_exit.head is None}
    return tuple(name for name in names if not missing.get(name, False))


def num_speculative_tokens(config: Config) -> int:
    """The most tokens that a request may draft per step."""
    return most_draft_tokens(config, drafting_names(config), NGRAM_DRAFT_TOKENS)
