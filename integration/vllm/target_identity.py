"""Which weights vLLM is about to serve, before it has loaded them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from foredraft.integration.errors import UserError
from foredraft.integration.models.fingerprint import fingerprint


@dataclass(frozen=True)
class VllmTarget:
    """See ``models.trained_for.TargetIdentity``.

    Attributes:
        model_config: vLLM's ``ModelConfig``.
        load_config: vLLM's ``LoadConfig``.
    """

    model_config: Any
    load_config: Any

    @property
    def name(self) -> str:
        """The last part of a path or hub id; the built-in model lies in a folder of its name."""
        return Path(self.model_config.model).name

    @property
    def vocab_size(self) -> int:
        """Its token ids are below this."""
        vocab_size: int = self.model_config.get_vocab_size()
        return vocab_size

    @cached_property
    def fingerprint(self) -> str:
        """Of the checkpoint, which is read through vLLM's loader.

        Raises:
            UserError: vLLM is to load it in a way that shows no weights.
        """
        from vllm.model_executor.model_loader import get_model_loader
        from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

        loader = get_model_loader(self.load_config)
        if not isinstance(loader, DefaultModelLoader):
            raise UserError(
                f"load_format: what was trained for a model is compared with its weights, which "
                f"{self.load_config.load_format!r} does not show"
            )
        weights = loader.get_all_weights(self.model_config, None)
        tied = getattr(self.model_config.hf_text_config, "tie_word_embeddings", False)
        return fingerprint(
            (name, weight)
            for name, weight in weights
            if not (tied and name == "lm_head.weight") and not name.endswith("rotary_emb.inv_freq")
        )
