"""The draft model while it trains: a few decoder layers between the target's embedding and head."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Student(nn.Module):
    """Predicts, at each position of a text, the target's law of the next token.

    Two forms. The *plain* one is a small language model. The other one *reads states*: at each position it is
    also given the target's last hidden state of the position before, which says what the target expected
    there (EAGLE: Li et al., ICML 2024).

    The target's embedding and head are used as they are and not trained; of the head only the rows
    ``head_ids``.

    Args:
        base: a causal model of transformers with as many decoder layers as the draft gets; its layers, norm
            and rotary embedding are taken over.
        head_weight: [S, H], rows of the target's head.
    """

    head_weight: Tensor

    def __init__(self, base: Any, head_weight: Tensor, *, reads_states: bool) -> None:
        super().__init__()
        config = base.config
        self.layers = base.model.layers
        self.norm = base.model.norm
        self.reads_states = reads_states
        self._rotary = [base.model.rotary_emb]  # in a list: its tables are no weights of the draft
        self.register_buffer("head_weight", head_weight, persistent=False)
        if reads_states:
            hidden_size = config.hidden_size
            self.embed_norm = nn.RMSNorm(hidden_size, eps=config.rms_norm_eps)
            self.state_norm = nn.RMSNorm(hidden_size, eps=config.rms_norm_eps)
            self.input_proj = nn.Linear(2 * hidden_size, hidden_size, bias=False)
            with torch.no_grad():  # the layers were made for hidden states: begin with the state alone
                self.input_proj.weight.zero_()
                self.input_proj.weight[:, hidden_size:].fill_diagonal_(1.0)

    def forward(self, embedded: Tensor, states: Tensor | None = None) -> Tensor:
        """Hidden states after the norm, [B, T, H].

        Args:
            embedded: [B, T, H], the target's embedding of the tokens. Sequences start at place 0; what
                follows a shorter one is ignored by all before it.
            states: [B, T, H], the target's hidden state of the position before, zeros at place 0; only for a
                draft that reads states.
        """
        hidden = embedded
        if self.reads_states:
            hidden = self.input_proj(torch.cat([self.embed_norm(embedded), self.state_norm(states)], dim=-1))
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        rotary = self._rotary[0](hidden, position_ids=positions)
        for layer in self.layers:
            hidden = layer(hidden, position_ids=positions, position_embeddings=rotary)
        normed: Tensor = self.norm(hidden)
        return normed

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, H] -> [N, S] over the tokens the draft knows."""
        return F.linear(hidden, self.head_weight)
