"""One completion while it is being generated: its tokens, its text, and when it ends."""

from __future__ import annotations

from collections.abc import Sequence as List
from dataclasses import dataclass, field, replace

from foredraft.integration.embedded.detokenizer import Detokenizer
from foredraft.integration.engine import CompletionOutput, FinishReason, PositionLogprobs, RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.verifier import TokenControls


@dataclass(frozen=True)
class Ending:
    """What ends a completion.

    Attributes:
        eos_ids: end-of-sequence tokens; empty when they are ignored.
        forbidden_early: tokens that may not come before ``min_tokens``.
        max_tokens: output tokens at most, already cut to the room left in the context.
    """

    eos_ids: frozenset[int]
    forbidden_early: tuple[int, ...]
    max_tokens: int


class Sequence:
    """``token_ids`` is prompt and output; only committed tokens ever enter it."""

    def __init__(
        self,
        sequence_id: str,
        index: int,
        prompt_ids: List[int],
        params: SamplingParams,
        ending: Ending,
        request_key: int,
        bad_words: List[List[int]] = (),
        detokenizer: Detokenizer | None = None,
    ) -> None:
        self.sequence_id = sequence_id
        self.params = params
        self.ending = ending
        self.request_key = request_key
        self.bad_words = bad_words
        self.prompt_ids = prompt_ids
        self.token_ids = list(prompt_ids)
        self.output = CompletionOutput(index=index, text="", token_ids=[])
        if params.logprobs is not None:
            self.output.logprobs = []
        self.row: int | None = None  # cache row while running
        self._detokenizer = detokenizer
        self._text = ""  # everything decoded; ``output.text`` lags where a stop text may be in the making
        self._stop_search_start = 0  # no stop text can begin before this place in ``_text``
        self._edits_logits = (
            params.repetition_penalty != 1.0
            or params.presence_penalty != 0.0
            or params.frequency_penalty != 0.0
            or bool(params.logit_bias or bad_words)
            or params.allowed_token_ids is not None
        )

    @property
    def finished(self) -> bool:
        """Whether nothing more will be generated."""
        return self.output.finish_reason is not None

    @property
    def room(self) -> int:
        """Output tokens still allowed."""
        return self.ending.max_tokens - len(self.output.token_ids)

    def controls(self) -> TokenControls | None:
        """The controls that edit this sequence's logits now, if any."""
        too_early = len(self.output.token_ids) < self.params.min_tokens
        if not (self._edits_logits or too_early):
            return None
        params = self.params
        return TokenControls(
            prompt_ids=self.prompt_ids,
            output_ids=self.output.token_ids,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            logit_bias=params.logit_bias,
            allowed_token_ids=params.allowed_token_ids,
            bad_words=self.bad_words,
            min_tokens=params.min_tokens,
            stop_token_ids=self.ending.forbidden_early,
        )

    def commit(self, token_ids: List[int]) -> int:
        """Append verified tokens until one ends the completion; returns how many were kept.

        Every token is judged where it stands in the block: a stop before the length limit, the length limit
        before what follows it.
        """
        unread: list[int] = []  # tokens not yet turned into text; one at a time where a stop text may match
        kept = 0
        for token in token_ids:
            kept += 1
            self.token_ids.append(token)
            self.output.token_ids.append(token)
            if self._is_stop_token(token):
                if self.params.include_stop_str_in_output:
                    unread.append(token)
                break
            unread.append(token)
            if self.params.stop:
                self._read(unread)
                unread = []
                if self._stop_text_found():
                    break
            if self.room <= 0:
                self._finish("length")
                break
        self._read(unread)
        self._show_text()
        return kept

    def finish(self, reason: FinishReason, error: str | None = None) -> None:
        """End from outside (abort, error)."""
        self.output.error = error
        self._finish(reason)
        self._show_text()

    def _finish(self, reason: FinishReason, stop_reason: int | str | None = None) -> None:
        self.output.finish_reason = reason
        self.output.stop_reason = stop_reason

    def _is_stop_token(self, token: int) -> bool:
        if len(self.output.token_ids) < self.params.min_tokens:
            return False
        if token in self.params.stop_token_ids:
            self._finish("stop", token)
        elif token in self.ending.eos_ids:
            self._finish("stop")
        return self.finished

    def _read(self, token_ids: List[int]) -> None:
        if token_ids and self._detokenizer is not None:
            self._text += self._detokenizer.push(token_ids)

    def _stop_text_found(self) -> bool:
        if len(self.output.token_ids) < self.params.min_tokens:
            self._stop_search_start = len(self._text)
            return False
        places = [(self._text.find(stop, self._stop_search_start), stop) for stop in self.params.stop]
        found = [(place, stop) for place, stop in places if place >= 0]
        if not found:
            longest = max(len(stop) for stop in self.params.stop)
            self._stop_search_start = max(self._stop_search_start, len(self._text) - longest + 1)
            return False
        place, stop = min(found, key=lambda match: match[0])
        end = place + len(stop) if self.params.include_stop_str_in_output else place
        self._text = self._text[:end]
        self._finish("stop", stop)
        return True

    def _show_text(self) -> None:
        """Publish the text; while running hold back what may turn out to be the start of a stop text."""
        if self.finished:
            if self._detokenizer is not None and not isinstance(self.output.stop_reason, str):
                self._text += self._detokenizer.flush()
            self.output.text = self._text
        elif self.params.stop:
            held = max(len(stop) for stop in self.params.stop) - 1
            self.output.text = self._text[: max(len(self.output.text), len(self._text) - held)]
        else:
            self.output.text = self._text


@dataclass
class Request:
    """A prompt and its ``n`` completions."""

    request_id: str
    prompt_ids: list[int]
    params: SamplingParams
    sequences: list[Sequence] = field(default_factory=list)
    prompt_logprobs: list[PositionLogprobs | None] | None = None

    def as_output(self) -> RequestOutput:
        """A snapshot of the request so far."""
        return RequestOutput(
            request_id=self.request_id,
            prompt_token_ids=list(self.prompt_ids),
            outputs=[_snapshot(sequence.output) for sequence in self.sequences],
            finished=all(sequence.finished for sequence in self.sequences),
            prompt_logprobs=None if self.prompt_logprobs is None else list(self.prompt_logprobs),
        )


def _snapshot(output: CompletionOutput) -> CompletionOutput:
    return replace(
        output,
        token_ids=list(output.token_ids),
        logprobs=None if output.logprobs is None else list(output.logprobs),
        speculation=replace(output.speculation),
    )
