"""What the user asked of the plugin, and how it travels: in vLLM's own ``additional_config``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foredraft.integration.config import VLLM_PROPOSERS, Config
from foredraft.integration.config_sources import load_config
from foredraft.integration.errors import UserError

KEY = "foredraft"
CONFIG_VARIABLE = "FOREDRAFT_CONFIG"
PLUGIN_FIELDS = ("proposer", "num_draft_tokens", "verification_rule", "ngram", "draft", "early_exit")
"""What the plugin decides. The other options of ``Config`` have their counterparts among vLLM's."""

DRAFTER = "foredraft.integration.vllm.drafter.Drafter"
"""What vLLM builds in each worker, as its ``custom_class`` proposer."""

SCHEDULER = "foredraft.integration.vllm.scheduler.LookaheadScheduler"
"""What schedules where a model drafts."""


def asked_for(additional_config: Any) -> Config | None:
    """What drafts in this engine, by ``additional_config["foredraft"]`` or else the file of FOREDRAFT_CONFIG.

    Returns:
        ``None`` if nobody asked, or asked for ``proposer: none``.

    Raises:
        UserError: a value that is refused.
    """
    config = _given(additional_config)
    if config is None or config.proposer == "none":
        return None
    if config.proposer in VLLM_PROPOSERS:
        raise UserError(f"proposer: {config.proposer} is vLLM's own; ask for it with speculative_config")
    return config


def _given(additional_config: Any) -> Config | None:
    if isinstance(additional_config, Mapping) and KEY in additional_config:
        return _from_mapping(additional_config[KEY])
    path = os.environ.get(CONFIG_VARIABLE)
    return load_config(Path(path), {}).config if path else None


def _from_mapping(values: Any) -> Config:
    if not isinstance(values, Mapping):
        raise UserError(f'additional_config["{KEY}"]: needs a mapping of options (got {values!r})')
    for name in values:
        if name in Config.model_fields and name not in PLUGIN_FIELDS:
            raise UserError(f'additional_config["{KEY}"]: {name}: leave it out, vLLM decides this')
    return Config(**values)


def to_mapping(config: Config) -> dict[str, Any]:
    """The plugin's options, for ``additional_config``: the workers read them there."""
    return config.model_dump(mode="json", include=set(PLUGIN_FIELDS))
