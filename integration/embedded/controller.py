"""From a configuration to the controller of draft lengths."""

from __future__ import annotations

from foredraft.integration.config import AUTO, Config, fixed_draft_tokens
from foredraft.integration.embedded.calibration import pass_seconds
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.drafting_parts import DraftingParts
from foredraft.integration.embedded.target import Target
from foredraft.proposers import Proposer
from foredraft.proposers.auto import AutoProposer
from foredraft.proposers.token_by_token import TokenByTokenProposer
from foredraft.scheduler.speculation import (
    AdaptiveDraftLength,
    DraftLengthController,
    FixedDraftLength,
    Member,
)

DRAFT_TOKENS = 8
"""Drafted per step where neither the configuration nor a draft model says how many: right for ``ngram``."""

AUTO_DRAFT_TOKENS = 16
AUTO_MODEL_DRAFT_TOKENS = 8
"""The most that is chosen where the number is open; the second where every token drafted costs a pass."""


def adapts(config: Config) -> bool:
    """Whether lengths are chosen step by step: when asked for, and always where several proposers share."""
    return config.num_draft_tokens == AUTO or config.proposer == AUTO or "," in config.proposer


def most_draft_tokens(config: Config, parts: DraftingParts) -> int:
    """Tokens drafted per request and step at most."""
    if adapts(config):
        return max((_most_of(name, config, parts) for name in parts.names), default=AUTO_DRAFT_TOKENS)
    own = [model.num_draft_tokens for model in parts.trained]
    return fixed_draft_tokens(config) or max(own, default=DRAFT_TOKENS)


def _most_of(name: str, config: Config, parts: DraftingParts) -> int:
    default = AUTO_DRAFT_TOKENS if parts.model_of(name) is None else AUTO_MODEL_DRAFT_TOKENS
    return fixed_draft_tokens(config) or default


def build_controller(
    config: Config, target: Target, decoder: SlotDecoder, proposer: Proposer | None, parts: DraftingParts
) -> DraftLengthController:
    """Fixed or adaptive; the latter after a calibration, unless ``engine.calibrate`` is off."""
    if proposer is None or not adapts(config):
        return FixedDraftLength(most_draft_tokens(config, parts))
    name = f"{target.fingerprint} {target.dtype} {config.engine.forward}"
    names = proposer.names if isinstance(proposer, AutoProposer) else [config.proposer]
    members = []
    for own_name, member in zip(names, proposer.members, strict=True):
        most, step_s = _most_of(own_name, config, parts), 0.0
        calibrates = config.engine.calibrate and not member.needs_hidden_states
        if calibrates and isinstance(member, TokenByTokenProposer):
            kind = f"{own_name} {getattr(config, own_name)} of {name}"
            step_s = pass_seconds(member.decoder, kind, sizes=(1,))[1]
        members.append(Member(own_name, most, member.num_prospects, step_s))
    return AdaptiveDraftLength(members, pass_seconds(decoder, name) if config.engine.calibrate else None)
