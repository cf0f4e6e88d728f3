"""From a configuration and flags to what the planner is asked."""

from __future__ import annotations

from pathlib import Path

from foredraft.integration.acceptance_option import acceptance_rates
from foredraft.integration.config import AUTO, Config, fixed_draft_tokens, proposer_names
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.deploy.model_sizes import sized_model
from foredraft.integration.deploy.plan_options import PlanOptions, label_mapping
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE
from foredraft.integration.models.pretrained import pretrained
from foredraft.scheduler.hardware_model.language_models import MODELS
from foredraft.scheduler.placement.errors import PlacementError
from foredraft.scheduler.placement.models import MODEL_PROPOSER, ModelNeed, Request

DEFAULT_CONTEXT = 2048
MOST_DRAFT_TOKENS = 8


def plan_request(loaded: LoadedConfig, options: PlanOptions) -> Request:
    """What is to be planned.

    Raises:
        UserError: a model that nobody knows, or values that do not go together.
    """
    config = loaded.config
    proposer = _proposer(loaded, options)
    most = fixed_draft_tokens(config) or MOST_DRAFT_TOKENS
    try:
        return Request(
            target=_target(config, options),
            draft=_draft(config, options) if proposer == MODEL_PROPOSER else None,
            proposer=proposer,
            num_replicas=options.replicas,
            batch_size=options.batch_size or config.engine.max_num_seqs,
            context=options.context or config.engine.max_model_len or DEFAULT_CONTEXT,
            acceptance=acceptance_rates(options.acceptance, most),
            strategy=options.strategy,
            device=options.device,
            exit_layer=config.early_exit.exit_layer,
            cpus_per_gpu=options.cpus_per_gpu,
            memory_bytes_per_gpu=int(options.ram_per_gpu_gb * 1e9),
            cpus_per_worker=options.cpus_per_worker,
        )
    except PlacementError as error:
        raise UserError(str(error)) from None


def _proposer(loaded: LoadedConfig, options: PlanOptions) -> str:
    """The one that counts: of several the draft model, for it needs a place; else the first.

    ``--draft`` means the proposer that runs it, unless others were asked for by name.
    """
    names = proposer_names(loaded.config)
    if options.draft and MODEL_PROPOSER not in names and loaded.origins["proposer"] != "default":
        asked = loaded.config.proposer
        raise UserError(f"--draft: means nothing with proposer {asked}; it goes with {MODEL_PROPOSER}")
    perhaps = loaded.config.proposer == AUTO and _shipped_draft(loaded.config, options) is None
    configured = MODEL_PROPOSER in names and (loaded.config.draft.model or not perhaps)
    if options.draft or configured:
        return MODEL_PROPOSER
    return next(name for name in names if name != MODEL_PROPOSER)


def _target(config: Config, options: PlanOptions) -> ModelNeed:
    sized = sized_model("--target", options.target or config.model, options.weight_bytes)
    return ModelNeed(
        sized.size,
        sized.weights_bytes,
        sized.kv_bytes_per_token,
        options.tensor_parallel,
        options.pipeline_parallel,
        options.gpu_share,
        label_mapping("--target-label", options.target_labels),
    )


def _draft(config: Config, options: PlanOptions) -> ModelNeed:
    sized = sized_model("--draft", options.draft or _configured_draft(config, options), options.weight_bytes)
    return ModelNeed(
        sized.size,
        sized.weights_bytes,
        sized.kv_bytes_per_token,
        options.draft_tensor_parallel,
        gpu_share=options.draft_gpu_share,
        labels=label_mapping("--draft-label", options.draft_labels),
    )


def _configured_draft(config: Config, options: PlanOptions) -> str:
    if config.draft.model is not None:
        return config.draft.model
    shipped = _shipped_draft(config, options)
    if shipped is None:
        target = options.target or config.model
        raise UserError(f"--draft: no draft comes with {target}; say which one is meant")
    return str(shipped)


def _shipped_draft(config: Config, options: PlanOptions) -> Path | None:
    target = options.target or config.model
    return pretrained(target, DRAFT_FILE) if target in MODELS else None
