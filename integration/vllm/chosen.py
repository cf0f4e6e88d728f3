"""What drafts in a vLLM engine, worked out where the engine is configured: workers get paths and numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foredraft.integration.config import AUTO, Config, proposer_names
from foredraft.integration.config_sections import OWN_HEAD
from foredraft.integration.draft_lengths import (
    MODEL_DRAFT_TOKENS,
    NGRAM_DRAFT_TOKENS,
    WITH_A_MODEL,
    adapts,
)
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import (
    DraftFile,
    check_finished,
    is_draft_file,
    read_draft_file,
    read_exit_file,
)
from foredraft.integration.models.loading import model_folder
from foredraft.integration.models.trained_for import (
    DRAFT_OPTION,
    EXIT_OPTION,
    check_made_for,
    check_own_exit,
    exit_head_path,
    exit_layer_of,
    shipped_draft,
)
from foredraft.integration.paths import user_path
from foredraft.integration.vllm.drafting_names import drafting_names
from foredraft.integration.vllm.log import logger
from foredraft.integration.vllm.support import (
    check_draft_model,
    check_layers,
    check_model_drafts,
)
from foredraft.integration.vllm.target_identity import VllmTarget


def chosen(config: Config, args: Any, model_config: Any, parallel_config: Any) -> Config:
    """The configuration with everything in it that a worker needs: files as paths, ``num_draft_tokens``.

    Under ``proposer: auto`` what cannot draft has no file then, and is left out (``drafting_names``).

    Args:
        args: vLLM's ``EngineArgs``.

    Raises:
        UserError: what is to draft is not there, does not fit the model, or does not work with an option.
    """
    for name in proposer_names(config):
        if name not in WITH_A_MODEL:
            config = _with(config, NGRAM_DRAFT_TOKENS)
            continue
        try:
            check_model_drafts(name, args, model_config, parallel_config)
            target = VllmTarget(model_config, args.create_load_config())
            config = _draft(config, target) if name == "draft" else _early_exit(config, target)
        except UserError as error:
            config = _without(config, name, error)
    try:
        _check_layers_once(config)
    except UserError as error:
        config = _without(config, "draft", error)
    return config


def _without(config: Config, name: str, error: UserError) -> Config:
    """The configuration with a proposer left out, under ``proposer: auto`` alone.

    Raises:
        UserError: ``error``, where the proposer was named.
    """
    if config.proposer != AUTO:
        raise error
    logger.info("proposer auto goes without %s: %s", name, error)
    option = "model" if name == "draft" else "head"
    section = getattr(config, name).model_copy(update={option: None})
    return config.model_copy(update={name: section})


def _check_layers_once(config: Config) -> None:
    """Refuse a trained draft beside an exit head: both would be trained layers on the target's rows.

    Raises:
        UserError: both are to draft.
    """
    names, model = drafting_names(config), config.draft.model
    if {"draft", "early_exit"} <= set(names) and model is not None and is_draft_file(Path(model)):
        raise UserError(
            "proposer: early_exit does not share the requests with a trained draft in vLLM; ngram does with "
            f"either, and so does a whole model with early_exit (got draft.model {model})"
        )


def _early_exit(config: Config, target: VllmTarget) -> Config:
    check_layers("early_exit", target.model_config)
    options = config.early_exit
    num_layers = target.model_config.get_total_num_hidden_layers()
    if options.head == OWN_HEAD:
        check_own_exit(options.exit_layer, num_layers)
        return _with(config, MODEL_DRAFT_TOKENS)
    path = exit_head_path(options.head, target.name)
    check_finished(path, EXIT_OPTION)
    file = read_exit_file(path)
    _check_trained(file, target, f"{EXIT_OPTION}: {path}")
    exit_layer = exit_layer_of(file, path, options.exit_layer, num_layers)
    values = {"head": str(path.resolve()), "exit_layer": exit_layer}
    return _with(config, file.num_draft_tokens, early_exit=options.model_copy(update=values))


def _draft(config: Config, target: VllmTarget) -> Config:
    options = config.draft
    for name in ("device", "dtype"):
        if getattr(options, name) is not None:
            raise UserError(f"draft.{name}: leave it out, vLLM runs the draft beside the model")
    if options.server is not None:
        raise UserError(
            f"draft.server: the embedded engine alone asks a draft server (got {options.server!r}); leave it "
            "out, vLLM runs the draft beside the model"
        )
    path = shipped_draft(target.name) if options.model is None else user_path(options.model, DRAFT_OPTION)
    check_finished(path, DRAFT_OPTION)
    if is_draft_file(path):
        check_layers("draft", target.model_config)
        file = read_draft_file(path)
        _check_trained(file, target, f"{DRAFT_OPTION}: {path}")
        values = {"model": str(path.resolve())}
        return _with(config, file.num_draft_tokens, draft=options.model_copy(update=values))
    folder = _folder(str(options.model))
    config = _with(config, MODEL_DRAFT_TOKENS, draft=options.model_copy(update={"model": str(folder)}))
    check_draft_model(config, target.model_config)
    return config


def _folder(name: str) -> Path:
    """The draft model's folder.

    Raises:
        UserError: there is none, or it is not in vLLM's format.
    """
    try:
        return model_folder(name)
    except UserError as error:
        raise UserError(f"draft.{error}" if str(error).startswith("model") else str(error)) from error


def _check_trained(file: DraftFile, target: VllmTarget, named: str) -> None:
    check_made_for(file, target, named)
    size, needed = file.layers_config["hidden_size"], target.model_config.get_hidden_size()
    if size != needed:
        raise UserError(f"{named}: made for hidden states of size {size}, the target has {needed}")


def _with(config: Config, num_draft_tokens: int, **values: Any) -> Config:
    number = config.num_draft_tokens or (None if adapts(config) else num_draft_tokens)
    return config.model_copy(update={"num_draft_tokens": number, **values})
