"""Our configuration in vLLM's options: which model, and the sizes that were given."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from foredraft.integration.config import Config
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.errors import UserError
from foredraft.integration.models.builtin import BUILTIN_MODEL, builtin_folder
from foredraft.integration.paths import user_path
from foredraft.integration.vllm import options

ENGINE_FIELDS = {
    "dtype": "dtype",
    "engine.max_num_seqs": "max_num_seqs",
    "engine.max_model_len": "max_model_len",
    "engine.prefill_chunk_tokens": "max_num_batched_tokens",
    "engine.seed": "seed",
}
"""Our option -> vLLM's. ``engine.forward`` belongs to the embedded engine and has none."""

SAMPLING_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_tokens": "max_new_tokens",
}
"""Defaults of requests that vLLM's server knows, under transformers' names."""


def given_options(loaded: LoadedConfig) -> list[str]:
    """Options that someone gave. The others are left to vLLM, whose defaults fit its devices."""
    return [option for option, origin in loaded.origins.items() if origin != "default"]


def engine_settings(config: Config, given: Collection[str]) -> dict[str, Any]:
    """The model, and the options in ``given``, as fields of vLLM's ``EngineArgs``.

    Raises:
        UserError: the model or the device cannot be had.
    """
    check_device(config)
    settings: dict[str, Any] = {"model": model_path(config.model)}
    if config.model == BUILTIN_MODEL:
        settings["served_model_name"] = [BUILTIN_MODEL]
    for option, field in ENGINE_FIELDS.items():
        if option in given:
            settings[field] = _value(config, option)
    if "engine.kv_cache_memory_gb" in given:
        settings["kv_cache_memory_bytes"] = int(config.engine.kv_cache_memory_gb * 1e9)
    return settings


def sampling_defaults(loaded: LoadedConfig) -> dict[str, Any]:
    """What vLLM's server takes as ``override_generation_config``.

    Raises:
        UserError: a default that vLLM's server has no place for.
    """
    defaults = {}
    for option, origin in loaded.origins.items():
        section, _, name = option.partition(".")
        if section != "sampling" or origin == "default":
            continue
        if name not in SAMPLING_FIELDS:
            known = ", ".join(SAMPLING_FIELDS)
            raise UserError(f"{origin}: {option}: the server of vLLM takes defaults for {known} only")
        defaults[SAMPLING_FIELDS[name]] = getattr(loaded.config.sampling, name)
    return defaults


def additional_config(config: Config) -> dict[str, Any]:
    """The plugin's part of ``additional_config``; it says so too where nothing is to be drafted."""
    return {options.KEY: options.to_mapping(config)}


def model_path(name: str) -> str:
    """What vLLM is to load: the converted folder of the built-in model, a folder, or a hub id.

    Raises:
        UserError: the built-in model is not installed; a file, which vLLM does not read.
    """
    if name == BUILTIN_MODEL:
        return str(builtin_folder())
    path = user_path(name, "model")
    if os.path.isfile(path):
        raise UserError(f"model: {name}: vLLM reads folders and hub ids, not single files")
    return str(path) if os.path.isdir(path) else name


def check_device(config: Config) -> None:
    """Refuse a device that the installed vLLM was not built for.

    Raises:
        UserError: it is another one, or a GPU by number.
    """
    from vllm.platforms import current_platform

    kind, _, number = config.device.partition(":")
    if number:
        raise UserError(f"device: choose GPUs for vLLM with CUDA_VISIBLE_DEVICES (got {config.device!r})")
    if kind != "auto" and kind != current_platform.device_type:
        raise UserError(
            f"device: this vLLM runs on {current_platform.device_type or 'no device here'} (got {kind!r})"
        )


def _value(config: Config, option: str) -> Any:
    section, _, name = option.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)
