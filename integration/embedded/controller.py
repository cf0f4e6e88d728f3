"""From a configuration to the controller of draft lengths."""

from __future__ import annotations

from foredraft.integration.config import Config
from foredraft.integration.draft_lengths import NGRAM_DRAFT_TOKENS, adapts
from foredraft.integration.draft_lengths import most_draft_tokens as most_of
from foredraft.integration.draft_members import members_of, named_members
from foredraft.integration.embedded.calibration import pass_seconds
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.drafting_parts import DraftingParts
from foredraft.integration.embedded.target import Target
from foredraft.proposers import Proposer
from foredraft.proposers.token_by_token import TokenByTokenProposer
from foredraft.scheduler.speculation import AdaptiveDraftLength, DraftLengthController, FixedDraftLength


def most_draft_tokens(config: Config, parts: DraftingParts) -> int:
    """Tokens drafted per request and step at most."""
    own = max((model.num_draft_tokens for model in parts.trained), default=NGRAM_DRAFT_TOKENS)
    return most_of(config, parts.names, own)


def build_controller(
    config: Config, target: Target, decoder: SlotDecoder, proposer: Proposer | None, parts: DraftingParts
) -> DraftLengthController:
    """Fixed or adaptive; the latter after a calibration, unless ``engine.calibrate`` is off."""
    if proposer is None or not adapts(config):
        return FixedDraftLength(most_draft_tokens(config, parts))
    if not config.engine.calibrate:
        return AdaptiveDraftLength(members_of(config, proposer, {}))
    name = f"{target.fingerprint} {target.dtype} {config.engine.forward}"
    step_s = {}
    for own_name, member in named_members(config, proposer).items():
        if isinstance(member, TokenByTokenProposer) and not member.needs_hidden_states:
            kind = f"{own_name} {getattr(config, own_name)} of {name}"
            step_s[own_name] = pass_seconds(member.decoder, kind, sizes=(1,))[1]
    return AdaptiveDraftLength(members_of(config, proposer, step_s), pass_seconds(decoder, name))
