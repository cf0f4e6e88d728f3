"""Refusals at start, by name, for proposers that run layers over vLLM's cache."""

from __future__ import annotations

from typing import Any

from foredraft.integration.config import Config
from foredraft.integration.errors import UserError
from foredraft.integration.models.checkpoint import read_tokenizer
from foredraft.integration.models.loading import model_folder
from foredraft.integration.models.vocabulary import check_same_vocabulary
from foredraft.integration.vllm.draft_config import draft_model_config
from foredraft.integration.vllm.options import SCHEDULER

LLAMA_SHAPED = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Classes of vLLM whose layers are run one by one."""

PLAIN_CACHES = ("auto", "float16", "bfloat16", "float32")


def check_model_drafts(proposer: str, args: Any, model_config: Any, parallel_config: Any) -> None:
    """Refuse engines in which no model can draft.

    Args:
        args, model_config, parallel_config: vLLM's.

    Raises:
        UserError: one sentence, naming option and value.
    """
    size = parallel_config.tensor_parallel_size
    if size > 1:
        raise UserError(f"tensor_parallel_size: proposer {proposer} needs 1, ngram does not (got {size})")
    for name, value in (
        ("enable_lora", args.enable_lora),
        ("kv_transfer_config", args.kv_transfer_config),
        ("kv_sharing_fast_prefill", args.kv_sharing_fast_prefill),
        ("enable_prompt_embeds", args.enable_prompt_embeds),
        ("scheduler_cls", None if args.scheduler_cls == SCHEDULER else args.scheduler_cls),
    ):
        if value:
            raise UserError(f"{name}: does not work with proposer {proposer} (got {value!r})")
    if args.kv_cache_dtype not in PLAIN_CACHES:
        allowed = ", ".join(PLAIN_CACHES)
        raise UserError(
            f"kv_cache_dtype: proposer {proposer} needs one of {allowed} (got {args.kv_cache_dtype!r})"
        )
    check_model(proposer, "model", model_config)


def check_layers(proposer: str, model_config: Any) -> None:
    """Refuse models whose layers are called otherwise than Llama's.

    Raises:
        UserError: naming vLLM's class of the model.
    """
    from vllm.model_executor.model_loader.utils import get_model_architecture

    name = get_model_architecture(model_config)[0].__name__
    if name not in LLAMA_SHAPED:
        raise UserError(
            f"proposer: {proposer} runs the layers of {', '.join(LLAMA_SHAPED)}; this model is a {name}"
        )


def check_draft_model(config: Config, target: Any) -> None:
    """Refuse a draft model that vLLM cannot run beside the target, or whose tokens are others.

    Args:
        target: vLLM's ``ModelConfig`` of the model.

    Raises:
        UserError: one sentence.
    """
    assert config.draft.model is not None, "a folder by now"
    try:
        draft = draft_model_config(config, target)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"draft.model: vLLM cannot run {config.draft.model}: {reason}") from error
    check_model("draft", "draft.model", draft)
    if target.tokenizer is None or target.skip_tokenizer_init:
        return
    folder = model_folder(target.tokenizer)
    check_same_vocabulary(read_tokenizer(folder), read_tokenizer(model_folder(config.draft.model)))


def check_model(proposer: str, option: str, model_config: Any) -> None:
    """Refuse models whose cache is not one block table for plain attention in every layer.

    Args:
        option: which names the model.

    Raises:
        UserError: one sentence.
    """
    text_config = model_config.hf_text_config
    kinds = set(getattr(text_config, "layer_types", None) or ["full_attention"])
    reasons = {
        "is multimodal": model_config.is_multimodal_model,
        "is an encoder and a decoder": model_config.is_encoder_decoder,
        "uses MLA": model_config.use_mla,
        "has layers without attention": model_config.is_hybrid or model_config.is_attention_free,
        "uses sliding-window attention": model_config.get_sliding_window() is not None,
        f"mixes kinds of attention ({', '.join(sorted(kinds))})": kinds != {"full_attention"},
    }
    for reason, applies in reasons.items():
        if applies:
            raise UserError(f"{option}: {model_config.model} {reason}; proposer {proposer} cannot use it")
