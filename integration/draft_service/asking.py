"""From a configuration to a proposer that asks a draft server."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from foredraft.integration.config import Config
from foredraft.integration.draft_lengths import MODEL_DRAFT_TOKENS
from foredraft.integration.embedded.draft_loading import draft_file
from foredraft.integration.embedded.target import Target
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import read_draft_file
from foredraft.integration.models.trained_for import DRAFT_OPTION, check_made_for
from foredraft.proposers.remote import RemoteProposer
from foredraft.proposers.remote_channel import ChannelError
from foredraft.proposers.remote_messages import TargetCard
from foredraft.scheduler.cluster import ClusterError, connect
from foredraft.scheduler.draft_server.ray_channel import RayChannel

logger = logging.getLogger(__name__)

ATTACH_S = 10.0
"""How long an engine waits for its draft server at the start; it starts without, and attaches later."""


@dataclass(frozen=True)
class RemoteDraft:
    """What an engine has to know of a draft that runs elsewhere; as in ``LoadedDraft``."""

    proposer: RemoteProposer
    reads_states: bool
    num_draft_tokens: int


def remote_draft(config: Config, target: Target) -> RemoteDraft:
    """The draft behind ``draft.server``, attached if the server is there.

    Raises:
        UserError: no Ray, no cluster, or the server's draft was made for another target.
    """
    reads_states, num_draft_tokens = _of_draft(config, target)
    card = TargetCard(
        target_id=uuid.uuid4().hex,
        vocab_size=target.vocab_size,
        fingerprint=target.fingerprint,
        state_size=target.prepared.hidden_size if reads_states else 0,
        state_dtype=str(target.dtype).removeprefix("torch."),
        draft_ahead=config.draft.draft_ahead,
    )
    proposer = RemoteProposer(ray_channel(config), card, deadline_s=config.draft.server_deadline_ms / 1000)
    _attach(proposer, config)
    return RemoteDraft(proposer, reads_states, num_draft_tokens)


def ray_channel(config: Config) -> RayChannel:
    """The way to ``draft.server``.

    Raises:
        UserError: Ray is not installed, or there is no cluster.
    """
    assert config.draft.server is not None, "a server is named"
    namespace, _, name = config.draft.server.rpartition("/")
    _connect(config.draft.server_address)
    return RayChannel(name, namespace or None)


def _of_draft(config: Config, target: Target) -> tuple[bool, int]:
    """Whether the draft reads hidden states, and how many tokens per step pay best."""
    path = draft_file(config, target.name)
    if path is None:
        return False, MODEL_DRAFT_TOKENS
    file = read_draft_file(path)
    check_made_for(file, target, f"{DRAFT_OPTION}: {path}")
    return file.reads_states, file.num_draft_tokens


def _connect(address: str | None) -> None:
    """Whoever runs in a cluster is connected already; the connection ends with the process."""
    try:
        connect(address or "auto")
    except ClusterError as error:
        raise UserError(f"draft.server: {error}; the cluster is named by draft.server_address") from None


def _attach(proposer: RemoteProposer, config: Config) -> None:
    try:
        card = proposer.attach(ATTACH_S)
    except (TimeoutError, ChannelError) as error:
        reason = str(error) or f"no answer within {ATTACH_S:.0f} s"
        logger.warning(
            "draft.server: %s is not there yet (%s); starting without", config.draft.server, reason
        )
        return
    if card.refusal is not None:
        raise UserError(f"draft.server: {config.draft.server} cannot draft for this model: {card.refusal}")
