"""Where vLLM's model runner (V1) hands over to the drafter. A runner without one goes vLLM's own way."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from foredraft.integration.vllm.hooks import Hook, HookSet

if TYPE_CHECKING:
    from foredraft.integration.vllm.drafter import Drafter

RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"


def drafter_of(runner: Any) -> Drafter | None:
    """The foredraft drafter of a runner, if it has one."""
    drafter = getattr(runner, "drafter", None)
    return cast("Drafter", drafter) if getattr(drafter, "is_foredraft", False) else None


def _sampling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _sample(self: Any, logits: Any, spec_decode_metadata: Any) -> Any:
        drafter = drafter_of(self)
        if drafter is None:
            return original(self, logits, spec_decode_metadata)
        return drafter.sample(self, logits, spec_decode_metadata)

    return _sample


def _passing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _update_states(self: Any, scheduler_output: Any) -> Any:
        drafter = drafter_of(self)
        if drafter is not None:
            drafter.lengths.pass_begins()
        return original(self, scheduler_output)

    return _update_states


def _drafting(original: Callable[..., Any]) -> Callable[..., Any]:
    names = [*inspect.signature(original).parameters][1:]

    @functools.wraps(original)
    def propose_draft_token_ids(self: Any, *args: Any, **kwargs: Any) -> Any:
        drafter = drafter_of(self)
        if drafter is None:
            return original(self, *args, **kwargs)
        # ``Hook.parameters`` has told that these are the names; ``bind`` takes thirty microseconds.
        given = dict(zip(names, args, strict=False)) | kwargs
        return drafter.draft(self, given["scheduler_output"], given["sampled_token_ids"], given)

    return propose_draft_token_ids


def _attaching(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _setup_eagle3_aux_hidden_state_outputs(self: Any) -> None:
        drafter = drafter_of(self)
        if drafter is None:
            original(self)
        else:
            drafter.backing.attach(self)

    return _setup_eagle3_aux_hidden_state_outputs


def _profiling(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def profile_run(self: Any, randomize_inputs: bool = False) -> None:
        original(self, randomize_inputs)
        drafter = drafter_of(self)
        if drafter is not None:
            drafter.backing.warm_up()

    return profile_run


def _fitting(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _input_fits_in_drafter(self: Any, common_attn_metadata: Any) -> bool:
        if drafter_of(self) is None:
            return cast(bool, original(self, common_attn_metadata))
        return common_attn_metadata is not None

    return _input_fits_in_drafter


def _removing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _on_request_state_removed(self: Any, req_id: str, req_state: Any) -> None:
        original(self, req_id, req_state)
        drafter = drafter_of(self)
        if drafter is not None:
            drafter.release(req_id, "finished")

    return _on_request_state_removed


RUNNER_HOOKS = HookSet(
    [
        Hook(
            name="states",
            purpose="a model that drafts reads states from inside the target",
            target=f"{RUNNER}._setup_eagle3_aux_hidden_state_outputs",
            parameters=("self",),
            make=_attaching,
        ),
        Hook(
            name="warm-up",
            purpose="a model that drafts is compiled, and its memory measured, before requests come",
            target=f"{RUNNER}.profile_run",
            parameters=("self", "randomize_inputs"),
            make=_profiling,
        ),
        Hook(
            name="pass",
            purpose="a step is timed without what vLLM waits for between two",
            target=f"{RUNNER}._update_states",  # the first thing that a pass does
            parameters=("self", "scheduler_output"),
            make=_passing,
        ),
        Hook(
            name="sample",
            purpose="our verifier decides which tokens are kept, and draws where nothing was drafted",
            target=f"{RUNNER}._sample",
            parameters=("self", "logits", "spec_decode_metadata"),
            make=_sampling,
        ),
        Hook(
            name="draft",
            purpose="our proposer drafts, for each request as many tokens as it may",
            target=f"{RUNNER}.propose_draft_token_ids",
            parameters=(
                "self",
                "scheduler_output",
                "sampled_token_ids",
                "sampling_metadata",
                "hidden_states",
                "sample_hidden_states",
                "aux_hidden_states",
                "spec_decode_metadata",
                "common_attn_metadata",
                "slot_mappings",
            ),
            make=_drafting,
        ),
        Hook(
            name="length limit",
            purpose="a request near the length limit stops drafting alone, not the whole batch",
            target=f"{RUNNER}._input_fits_in_drafter",
            parameters=("self", "common_attn_metadata"),
            make=_fitting,
        ),
        Hook(
            name="release",
            purpose="the proposer forgets a request when the runner does",
            target=f"{RUNNER}._on_request_state_removed",
            parameters=("self", "req_id", "req_state"),
            make=_removing,
        ),
    ]
)
