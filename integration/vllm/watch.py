"""The one patch that an installed plugin makes unasked: it looks whether an engine asks for foredraft."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from foredraft.integration.draft_lengths import WITH_A_MODEL
from foredraft.integration.errors import UserError
from foredraft.integration.vllm import options
from foredraft.integration.vllm.chosen import chosen
from foredraft.integration.vllm.drafting_names import drafting_names, num_speculative_tokens
from foredraft.integration.vllm.hooks import Hook, HookSet
from foredraft.integration.vllm.log import logger
from foredraft.integration.vllm.metrics_export import offer_folder
from foredraft.integration.vllm.request_hooks import REQUEST_HOOKS


def _watching(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_speculative_config(self: Any, target_model_config: Any, target_parallel_config: Any) -> Any:
        config = options.asked_for(self.additional_config)
        if config is not None:
            _check(self, target_model_config, target_parallel_config)
            config = chosen(config, self, target_model_config, target_parallel_config)
            REQUEST_HOOKS.apply()
            # A new dictionary: vLLM's default is shared with what the caller passed in.
            self.additional_config = {
                **(self.additional_config or {}),
                options.KEY: options.to_mapping(config),
            }
            self.speculative_config = {
                "method": "custom_class",
                "model": options.DRAFTER,
                "num_speculative_tokens": num_speculative_tokens(config),
            }
            if not self.disable_log_stats:
                offer_folder()
            names = drafting_names(config)
            if any(name in WITH_A_MODEL for name in names):
                self.scheduler_cls = options.SCHEDULER
            logger.info("foredraft drafts with %s", ", ".join(names))
        return original(self, target_model_config, target_parallel_config)

    return create_speculative_config


def _check(args: Any, model_config: Any, parallel_config: Any) -> None:
    """Refuse, by name, what does not work together.

    Raises:
        UserError: one sentence.
    """
    given = args.speculative_config
    if given is not None and given.get("model") != options.DRAFTER:
        raise UserError(f"speculative_config: foredraft is asked to draft too, leave one out (got {given})")
    _check_logits_processors(args)
    for name in ("kv_transfer_config", "kv_offloading_size"):
        if getattr(args, name) is not None:
            raise UserError(f"{name}: KV connectors have not been tried with foredraft; leave it out")
    if model_config.is_multimodal_model:
        raise UserError(
            f"model: {model_config.model} takes more than text, which foredraft does not draft for"
        )
    if model_config.runner_type != "generate":
        raise UserError(f"runner: foredraft drafts for generate only (got {model_config.runner_type!r})")
    for name in ("pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size"):
        if getattr(parallel_config, name) > 1:
            raise UserError(f"{name}: foredraft needs 1 (got {getattr(parallel_config, name)})")
    # There each rank schedules for itself.
    if parallel_config.distributed_executor_backend == "external_launcher":
        raise UserError(
            "distributed_executor_backend: foredraft needs mp, ray or uni (got external_launcher)"
        )


def _check_logits_processors(args: Any) -> None:
    """They act on a batch's logits row by row, and know nothing of the rows that drafts add.

    Those that packages install vLLM itself leaves out under any speculation, without a word.
    """
    if args.logits_processors:
        raise UserError(f"logits_processors: they do not work with drafts (got {args.logits_processors})")
    installed = sorted(point.name for point in entry_points(group="vllm.logits_processors"))
    if installed:
        raise UserError(
            f"logits_processors: {', '.join(installed)} is installed as one, and does not work with drafts; "
            "uninstall it, or run without foredraft"
        )


WATCH = HookSet(
    [
        Hook(
            name="options",
            purpose="reads what an engine asks of foredraft; without it, does nothing",
            target="vllm.engine.arg_utils:EngineArgs.create_speculative_config",
            parameters=("self", "target_model_config", "target_parallel_config"),
            make=_watching,
        )
    ]
)
