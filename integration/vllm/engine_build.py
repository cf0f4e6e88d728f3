"""From a configuration to a running vLLM."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from foredraft.integration.config import AUTO, VLLM_PROPOSERS, Config
from foredraft.integration.draft_lengths import MODEL_DRAFT_TOKENS, NGRAM_DRAFT_TOKENS
from foredraft.integration.errors import UserError
from foredraft.integration.vllm import options
from foredraft.integration.vllm.engine import VllmEngine
from foredraft.integration.vllm.engine_settings import additional_config, engine_settings, model_path
from foredraft.integration.vllm.hooks import vllm_version
from foredraft.integration.vllm.metrics_export import FOLDER_VARIABLE
from foredraft.integration.vllm.plugin import require_hooks

OFFLINE_OPTIONS = (
    "dtype",
    "engine.max_num_seqs",
    "engine.max_model_len",
    "engine.seed",
    "engine.kv_cache_memory_gb",
)
"""What an engine without a server is always told: its defaults are ours, as on the embedded engine."""


def build_vllm_engine(config: Config, given: Mapping[str, Any]) -> VllmEngine:
    """An engine for ``config``, in a process of its own unless VLLM_ENABLE_V1_MULTIPROCESSING=0.

    Args:
        given: fields of vLLM's ``EngineArgs`` that go before the configuration.

    Raises:
        UserError: something that vLLM or the plugin refuses.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    _check_fields(given)
    ours = engine_settings(config, OFFLINE_OPTIONS) | {"disable_log_stats": True, "use_tqdm_on_load": False}
    settings = ours | speculation_settings(config) | dict(given)
    folder = tempfile.TemporaryDirectory(prefix="foredraft-metrics-")
    with _metrics_go_to(folder.name):
        try:
            engine = LLMEngine.from_engine_args(EngineArgs(**settings))
        except UserError:
            raise
        except (TypeError, ValueError, RuntimeError) as error:  # also of the process that has the engine
            raise UserError(f"vllm: {' '.join(str(error).split())}") from None
    speculation = engine.vllm_config.speculative_config
    return VllmEngine(engine, speculation.num_speculative_tokens if speculation else 0, folder)


@dataclass(frozen=True)
class ModelFacts:
    """What vLLM knows of a model before it loads it.

    Attributes:
        max_len: positions the model can take.
        gpu_name: of the device it will run on; ``None`` without a GPU.
    """

    tokenizer: Any | None
    max_len: int
    dtype: str
    device: str
    gpu_name: str | None
    vllm_version: str


def model_facts(config: Config, given: Mapping[str, Any]) -> ModelFacts:
    """Read a model's configuration and tokenizer.

    Raises:
        UserError: vLLM cannot use it.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.tokenizers import cached_tokenizer_from_config

    _check_fields(given)
    settings = engine_settings(config, ("dtype", "engine.max_model_len")) | dict(given)
    try:
        model = EngineArgs(**settings).create_model_config()
    except (TypeError, ValueError) as error:
        raise UserError(f"vllm: {' '.join(str(error).split())}") from None
    return ModelFacts(
        cached_tokenizer_from_config(model),
        model.max_model_len,
        str(model.dtype).removeprefix("torch."),
        current_platform.device_type,
        current_platform.get_device_name() if current_platform.is_cuda_alike() else None,
        vllm_version(),
    )


def _check_fields(given: Mapping[str, Any]) -> None:
    from vllm.engine.arg_utils import EngineArgs

    for name in given:
        if name not in EngineArgs.__dataclass_fields__:
            raise UserError(f"--vllm {name}: vLLM's engine has no such option")


def speculation_settings(config: Config) -> dict[str, Any]:
    """How vLLM is told what drafts: the plugin's options, vLLM's own method, or nothing.

    Raises:
        UserError: a method of vLLM's that lacks something, or that vLLM does not have.
    """
    if config.proposer == "none":
        return {"additional_config": additional_config(config)}
    telling = {"per_request_spec_decode_metrics": "detailed"}
    if config.proposer not in VLLM_PROPOSERS:
        require_hooks(config)
        return telling | {"additional_config": additional_config(config)}
    off = {options.KEY: {"proposer": "none"}}
    return telling | {"additional_config": off, "speculative_config": _own_method(config)}


def _own_method(config: Config) -> dict[str, Any]:
    """vLLM's ``speculative_config`` for one of its own methods, with our numbers."""
    method = config.proposer.partition(":")[2]
    if config.num_draft_tokens == AUTO:
        raise UserError(f"num_draft_tokens: {config.proposer} is vLLM's own and needs a number (got auto)")
    usual = MODEL_DRAFT_TOKENS if method == "draft_model" else NGRAM_DRAFT_TOKENS
    own: dict[str, Any] = {
        "method": method,
        "num_speculative_tokens": config.num_draft_tokens or usual,
    }
    if method == "ngram":
        own |= {"prompt_lookup_min": config.ngram.min_n, "prompt_lookup_max": config.ngram.max_n}
    if method == "draft_model":
        if config.draft.model is None:
            raise UserError("draft.model: vllm:draft_model needs a model that vLLM can load (got null)")
        own["model"] = model_path(config.draft.model)
    return own


@contextmanager
def _metrics_go_to(folder: str) -> Iterator[None]:
    """The drafter that is built meanwhile, in this process or one that it starts, writes there."""
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ[FOLDER_VARIABLE]
        else:
            os.environ[FOLDER_VARIABLE] = before
