"""A stock vLLM behind our ``Engine``: with our plugin, with vLLM's own methods, or without speculation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foredraft.integration.engine import CompletionOutput, Engine, RequestOutput
from foredraft.integration.errors import UserError
from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.sampling_params import SamplingParams
from foredraft.integration.vllm.metrics_export import read_counters
from foredraft.integration.vllm.request_params import completion_of, position_logprobs, to_vllm


@dataclass
class _Request:
    """What has come of a request. ``passes``: per completion, in how many steps it grew."""

    num_completions: int
    prompt_ids: list[int] = field(default_factory=list)
    completions: dict[int, CompletionOutput] = field(default_factory=dict)
    passes: dict[int, int] = field(default_factory=dict)
    prompt_logprobs: list[Any] | None = None

    @property
    def finished(self) -> bool:
        ended = [one for one in self.completions.values() if one.finish_reason is not None]
        return len(ended) == self.num_completions


class VllmEngine(Engine):
    """Serves requests over one of vLLM's ``LLMEngine``, which may run in a process of its own.

    Counts of drafted and accepted tokens come with the outputs, when they are finished. What vLLM does not
    tell is missing from ``metrics.seconds``: the target pass.

    Args:
        num_draft_tokens: drafted per step and request at most; 0 = plain decoding.
        metrics_folder: where the plugin's drafter, if there is one, writes its own counters.
    """

    def __init__(
        self, llm_engine: Any, num_draft_tokens: int, metrics_folder: TemporaryDirectory[str]
    ) -> None:
        self.llm_engine = llm_engine
        self.tokenizer = llm_engine.renderer.tokenizer
        self.max_model_len: int = llm_engine.model_config.max_model_len
        self.metrics = EngineMetrics(seconds={"total": 0.0})
        self._num_draft_tokens = num_draft_tokens
        self._metrics_folder = metrics_folder
        self._requests: dict[str, _Request] = {}
        self._aborted: list[RequestOutput] = []

    @property
    def num_draft_tokens(self) -> int:
        """See ``Engine.num_draft_tokens``."""
        return self._num_draft_tokens

    def add_request(self, request_id: str, prompt: str | Sequence[int], params: SamplingParams) -> None:
        """See ``Engine.add_request``."""
        if request_id in self._requests:
            raise UserError(f"request_id: {request_id!r} is in use; ids must differ while a request runs")
        from vllm.exceptions import VLLMValidationError

        asked = prompt if isinstance(prompt, str) else {"prompt_token_ids": list(prompt)}
        try:
            self.llm_engine.add_request(request_id, asked, to_vllm(params))
        except (ValueError, VLLMValidationError) as error:
            raise UserError(f"vllm: {error}") from None
        self._requests[request_id] = _Request(params.n)

    def abort(self, request_id: str) -> None:
        """See ``Engine.abort``; the next ``step`` returns its last output, finish reason ``abort``."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return
        self.llm_engine.abort_request([request_id])
        for index in range(request.num_completions):
            completion = request.completions.setdefault(index, CompletionOutput(index, "", []))
            if completion.finish_reason is None:
                completion.finish_reason = "abort"
        self._aborted.append(_output(request_id, request))

    def has_unfinished_requests(self) -> bool:
        """See ``Engine.has_unfinished_requests``."""
        return bool(self._requests or self._aborted)

    def step(self) -> list[RequestOutput]:
        """See ``Engine.step``."""
        outputs, self._aborted = self._aborted, []
        if not self._requests:
            return outputs
        started = time.perf_counter()
        changed = [self._take(output) for output in self.llm_engine.step()]
        self.metrics.seconds["total"] += time.perf_counter() - started
        self.metrics.num_steps += bool(changed)
        if any(output.finished for output in changed):
            self._read_counters()
        return outputs + changed

    def shutdown(self) -> None:
        """Give back what vLLM holds; the engine cannot be used afterwards."""
        self.llm_engine.engine_core.shutdown()

    def _take(self, output: Any) -> RequestOutput:
        """Add what a step brought; vLLM tells one completion of a request at a time."""
        request = self._requests[output.request_id]
        request.prompt_ids = list(output.prompt_token_ids or ())
        request.prompt_logprobs = output.prompt_logprobs
        for one in output.outputs:
            before = request.completions.get(one.index)
            num_new = len(one.token_ids) - (len(before.token_ids) if before else 0)
            request.passes[one.index] = request.passes.get(one.index, 0) + (num_new > 0)
            request.completions[one.index] = completion_of(one, request.passes[one.index])
            self._count(one, num_new)
        if request.finished:
            del self._requests[output.request_id]
        return _output(output.request_id, request)

    def _count(self, output: Any, num_new: int) -> None:
        self.metrics.num_emitted_tokens += num_new
        found = output.spec_decode_metrics
        if found is None:
            return
        for drafted, accepted in zip(found.per_step_drafted, found.per_step_accepted, strict=True):
            self.metrics.count_draft(drafted, drafted, accepted)

    def _read_counters(self) -> None:
        """What only the drafter knows, in whichever process it runs."""
        counters = read_counters(Path(self._metrics_folder.name))
        if not counters:
            return
        self.metrics.num_proposer_faults = int(counters.get("foredraft_proposer_faults_total", 0))
        self.metrics.seconds["propose"] = counters.get("foredraft_proposer_seconds_total", 0.0)
        self.metrics.seconds["sample"] = counters.get("foredraft_verifier_seconds_total", 0.0)


def _output(request_id: str, request: _Request) -> RequestOutput:
    prompt_logprobs = request.prompt_logprobs
    return RequestOutput(
        request_id,
        request.prompt_ids,
        [request.completions[index] for index in sorted(request.completions)],
        request.finished,
        None
        if prompt_logprobs is None
        else [None if one is None else position_logprobs(one) for one in prompt_logprobs],
    )
