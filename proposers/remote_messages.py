"""What a target and a draft server say to each other: only what is new, and nothing but the kept tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from foredraft.proposers.compact_laws import CompactLaws

DraftAhead = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class TargetCard:
    """Who asks, and what a draft must fit.

    Attributes:
        target_id: of one proposer object, never used twice.
        fingerprint: of the target's weights; a trained draft is bound to them.
        state_size: values of a hidden state that it sends, 0 = it sends none.
        state_dtype: "float32", "bfloat16" or "float16".
        draft_ahead: whether the server drafts on while the target verifies; "auto" = where it pays.
    """

    target_id: str
    vocab_size: int
    fingerprint: str
    state_size: int = 0
    state_dtype: str = "float32"
    draft_ahead: DraftAhead = "auto"


@dataclass(frozen=True)
class ServerCard:
    """Who answers.

    Attributes:
        incarnation: of one life of the server; what it knew is gone with it.
        refusal: why it cannot draft for this target, ``None`` if it can.
    """

    incarnation: str
    refusal: str | None = None


@dataclass(frozen=True)
class RequestSampling:
    """How a request samples, as ``SamplingBatch`` has it; its ``controls`` are left to the target."""

    request_key: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


@dataclass(frozen=True)
class RequestUpdate:
    """What is new of one request.

    Attributes:
        handle: the request's number, never used twice by a target.
        start: committed tokens that the server holds already.
        token_ids: committed tokens from there on.
        wanted: tokens to draft after them; 0 = more of the request follows first.
        sampling: with the first message, and again when it changed.
    """

    handle: int
    start: int
    token_ids: Sequence[int]
    wanted: int
    sampling: RequestSampling | None = None


@dataclass(frozen=True)
class DraftRequest:
    """One step of a target.

    Attributes:
        step: grows by one with each message of a target.
        deadline_s: how long the target waits; a server that comes to it later need not draft.
        released: handles that ended.
        states: for a draft that reads them, the target's last hidden states as the bytes of [N, H], request
            by request: of positions [max(start - 1, 0), start + len(token_ids) - 1).
    """

    target_id: str
    step: int
    deadline_s: float
    updates: Sequence[RequestUpdate]
    released: Sequence[int] = ()
    states: bytes = b""


@dataclass(frozen=True)
class DraftAnswer:
    """What came of one ``DraftRequest``.

    Attributes:
        step: of the request.
        incarnation: see ``ServerCard``.
        num_known: of each handle the tokens that the server now holds; 0 = all of it is to be sent again.
        token_ids: drafted tokens of each handle that got any.
        laws: what the tokens of the rows of ``law_handles`` were drawn from; other rows are point masses.
        turned_away: handles for which there is no room, and for how many seconds it is no use to ask again.
        busy: nothing was taken in: too much is waiting, or the server is about to go.
    """

    step: int
    incarnation: str
    num_known: Mapping[int, int] = field(default_factory=dict)
    token_ids: Mapping[int, Sequence[int]] = field(default_factory=dict)
    law_handles: Sequence[int] = ()
    laws: CompactLaws | None = None
    turned_away: Mapping[int, float] = field(default_factory=dict)
    busy: bool = False
