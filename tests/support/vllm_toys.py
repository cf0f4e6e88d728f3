"""Tiny models in folders that a real vLLM loads, and engines over them. CPU, float32, no downloads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

# Read by vLLM when it is imported.
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")


def toy_folder(folder: Path, head_scale: float = 1.0, **sizes: int) -> Path:
    """A random Llama, see ``toy_llama``.

    Args:
        head_scale: below 1 its choices are less sure.
    """
    model = toy_llama(**sizes)
    model.lm_head.weight.data *= head_scale
    model.save_pretrained(folder)
    return folder


def toy_llama(
    vocab_size: int = 97, num_layers: int = 2, seed: int = 0, num_heads: int = 2, **changes: Any
) -> LlamaForCausalLM:
    """A random Llama; its heads have 32 dimensions, the fewest that vLLM's CPU attention takes."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32 * num_heads,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        max_position_embeddings=512,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
        **changes,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def make_llm(folder: Path, foredraft: dict[str, Any] | None = None, **options: Any) -> Any:
    """A vLLM engine in this process; with ``foredraft``, ours drafts and decides in it."""
    from vllm import LLM

    if foredraft is not None:
        options["additional_config"] = {"foredraft": foredraft}
    given: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 8,
        "seed": 0,
        "disable_log_stats": True,
    }
    return LLM(model=str(folder), **(given | options))


@contextmanager
def in_a_process_of_its_own() -> Iterator[None]:
    """For engines with vLLM's own n-gram proposer, made meanwhile: they load numba, and where it is loaded
    vLLM 0.32 can make no further engine (it searches all modules, and stumbles over one of llvmlite's)."""
    before = os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"]
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    try:
        yield
    finally:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = before


def runner_of(llm: Any) -> Any:
    """The model runner of an engine of ``make_llm``."""
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def close(llm: Any) -> None:
    """Give back what the engine holds in this process, so that another one can be made."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    llm.llm_engine.engine_core.shutdown()
    cleanup_dist_env_and_memory()


def run(llm: Any, prompts: Sequence[Sequence[int]], params: Any) -> list[list[int]]:
    """Output tokens of the first completion of each prompt."""
    outputs = llm.generate([{"prompt_token_ids": list(one)} for one in prompts], params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]
