"""What the proposers of a configuration are made of: loaded once, before memory is planned."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foredraft.integration.config import AUTO, Config, proposer_names
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_loading import LoadedDraft, load_draft
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_loading import LoadedExit, load_exit
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.proposers import DraftDecoder, Proposer, create_proposer
from foredraft.proposers.auto import AutoProposer

if TYPE_CHECKING:
    from foredraft.integration.draft_service.asking import RemoteDraft

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DraftingParts:
    """The proposers by name, and the models of those that have one."""

    names: Sequence[str]
    draft: LoadedDraft | RemoteDraft | None
    early_exit: LoadedExit | None

    @property
    def trained(self) -> Sequence[LoadedDraft | RemoteDraft | LoadedExit]:
        """The models that there are."""
        return [part for part in (self.draft, self.early_exit) if part is not None]

    def model_of(self, name: str) -> LoadedDraft | RemoteDraft | LoadedExit | None:
        """That of a proposer, if it has one."""
        return {"draft": self.draft, "early_exit": self.early_exit}.get(name)


def load_parts(config: Config, target: Target) -> DraftingParts:
    """The models of the proposers. Under ``proposer: auto`` what cannot draft for the target is left out.

    Raises:
        UserError: a proposer that was named cannot draft for the target.
    """
    names, loaded = [], dict[str, Any]()
    for name in proposer_names(config):
        try:
            loaded[name] = _load(name, config, target)
        except UserError as error:
            if config.proposer != AUTO:
                raise
            logger.info("proposer auto goes without %s: %s", name, error)
            continue
        names.append(name)
    return DraftingParts(names, loaded.get("draft"), loaded.get("early_exit"))


def _load(name: str, config: Config, target: Target) -> LoadedDraft | RemoteDraft | LoadedExit | None:
    if name == "draft" and config.draft.server is not None:
        from foredraft.integration.draft_service.asking import remote_draft

        return remote_draft(config, target)
    if name == "draft":
        return load_draft(config, target)
    return load_exit(config.early_exit, target) if name == "early_exit" else None


def build_proposer(config: Config, decoder: SlotDecoder, parts: DraftingParts) -> Proposer | None:
    """The proposer of a configuration, over the target's decoder; ``None`` = plain decoding."""
    built = {name: _built(name, config, decoder, parts) for name in parts.names}
    if config.proposer in parts.names:
        return built[config.proposer]
    return AutoProposer({name: one for name, one in built.items() if one is not None})


def _built(name: str, config: Config, decoder: SlotDecoder, parts: DraftingParts) -> Proposer | None:
    model = parts.model_of(name)
    if model is None:
        section = getattr(config, name, None) if name in type(config).model_fields else None
        return create_proposer(name, section.model_dump() if section is not None else {})
    if not isinstance(model, LoadedDraft | LoadedExit):
        return model.proposer
    options = {
        "decoder": _drafting_decoder(decoder, model),
        "head_ids": model.head_ids,
        "reads_states": model.reads_states,
        "min_confidence": getattr(config, name).min_confidence,
    }
    return create_proposer(name, options)


def _drafting_decoder(decoder: SlotDecoder, model: LoadedDraft | LoadedExit) -> DraftDecoder:
    if isinstance(model, LoadedExit):
        return ExitDecoder(decoder, model.head)
    capacity = min(decoder.capacity, model.max_len)
    return SlotDecoder(model.prepared, decoder.num_rows, capacity, model.max_len, model.vocab_size)
