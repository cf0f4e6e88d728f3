"""The plain forward pass: transformers' own modules, with their attention reading our cache slots.

Works for any causal model of transformers whose attention can be replaced; the reference for the fused path.
Known families (``families``) run layer by layer, others over their whole depth at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from foredraft.integration.embedded.attention import Layout, build_layout, slot_attention
from foredraft.integration.embedded.layer_runner import make_runner
from foredraft.integration.embedded.slot_cache import SlotCache
from foredraft.integration.errors import UserError
from foredraft.proposers.decoder import Tokens

ATTENTION_NAME = "foredraft_slots"


def _attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' attention interface: [1, heads, T, D] in, [1, T, heads * D] out."""
    if kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None:
        raise UserError("model: attention with soft-capping or sinks is not supported by the embedded engine")
    scale = kwargs.get("scaling")
    output = slot_attention(
        kwargs["slot_layout"],
        module.layer_idx,
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        query.shape[-1] ** -0.5 if scale is None else scale,
        kwargs.get("sliding_window"),
    )
    return output.view(1, query.shape[2], query.shape[1], query.shape[3]), None


AttentionInterface.register(ATTENTION_NAME, _attention)


def why_not_plain(model: Any) -> str | None:
    """The reason a transformers model cannot run over cache slots, or ``None``."""
    kinds = set(getattr(model.config, "layer_types", None) or ())
    stateful = kinds - {"full_attention", "sliding_attention"}
    if stateful or getattr(model, "_is_stateful", False):
        names = ", ".join(sorted(stateful)) or "recurrent"
        return f"it keeps state that cannot be rolled back by length ({names})"
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention cannot be replaced (no attention backend support in transformers)"
    if getattr(model.config, "final_logit_softcapping", None) is not None:
        # By name, because small logits are hardly changed by it: ``_check`` would not notice.
        return "soft-capping of its logits is not supported"
    return None


class PlainModel:
    """See ``forward.ForwardPass``. A pass changes nothing in the transformers model, so it can be shared."""

    def __init__(self, model: Any) -> None:
        config = model.config
        self.num_layers: int = config.num_hidden_layers
        self.num_kv_heads: int = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        self.head_dim: int = (
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        )
        self.hidden_size: int = config.hidden_size
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self._model = model.eval()  # dropout is off
        self._runner = make_runner(model)
        self.why_whole_depth_only: str | None = self._runner.why_whole_depth_only
        self._check()

    def embed(self, token_ids: Tensor, states: Tensor | None = None) -> Tensor:
        """[T] -> [T, H]."""
        assert states is None, "only a trained draft reads states"
        embedded: Tensor = self._model.get_input_embeddings()(token_ids)
        return embedded

    def layers(self, hidden: Tensor, layout: Layout, first: int, last: int) -> Tensor:
        """Layers [first, last), then the final norm if the last one is among them."""
        return self._runner.run(hidden, layout, first, last)

    def norm(self, hidden: Tensor) -> Tensor:
        """The final norm: [N, H] -> [N, H]."""
        return self._runner.norm(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, V]."""
        logits: Tensor = self._model.get_output_embeddings()(hidden)
        return logits

    @torch.inference_mode()
    def _check(self) -> None:
        """Hold our logits of a few tokens against the model's own, and switch its attention over.

        Some families scale logits after the projection, or attend in ways of their own: better refused here
        than silently wrong, or an error in the middle of serving.
        """
        ids = torch.arange(4, device=self.device)
        embedded = self.embed(ids)[None]
        expected = self._model(ids[None], use_cache=False).logits[0]
        hidden = self._model.base_model(inputs_embeds=embedded, use_cache=False).last_hidden_state[0]
        cannot = f"model: the embedded engine cannot run {self._model.config.model_type!r}"
        if not _close(self.head(hidden), expected, 0.01):
            raise UserError(f"{cannot}: it does more than project to get its logits, scaling perhaps")
        self._model.set_attn_implementation(ATTENTION_NAME)
        try:
            logits = self._logits_over_slots(ids)
        except (AttributeError, IndexError, KeyError, RuntimeError) as error:
            raise UserError(f"{cannot}: {error}") from error
        if not _close(logits, expected, 0.1):
            raise UserError(f"{cannot}: its attention is of another kind")

    def _logits_over_slots(self, ids: Tensor) -> Tensor:
        cache = SlotCache(
            self.num_layers, 1, self.num_kv_heads, len(ids), self.head_dim, self.dtype, self.device
        )
        layout = build_layout(cache, Tokens(ids, row_ids=[0], starts=[0], query_lens=[len(ids)]), self.device)
        return self.head(self.layers(self.embed(ids), layout, 0, self.num_layers))


def _close(logits: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Whether the largest difference is below this share of the largest logit; low precision needs some."""
    difference = (logits.float() - expected.float()).abs().max()
    return bool(difference <= tolerance * expected.float().abs().max())
