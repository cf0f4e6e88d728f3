"""What is trained: a few decoder layers between something the target gives and rows of its head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Student(nn.Module):
    """Predicts, at each position of a text, the target's law of the next token.

    What it is *given* of each token is the target's embedding (a draft), or the target's state after its exit
    layer (an exit head). Two forms. The *plain* one reads nothing else. The other one *reads states*: at each
    position it is also given the target's last hidden state of the position before, which says what the
    target expected there (EAGLE: Li et al., ICML 2024).

    The target's embedding and head are used as they are and not trained; of the head only the rows
    ``head_ids``.

    Args:
        base: a causal model of transformers with as many decoder layers as there will be; its layers, norm
            and rotary embedding are taken over.
        head_weight: [S, H], rows of the target's head.
        given_size: root mean square of what the first layer is to see at the beginning of what is given.
            With 0 it sees the target's last state alone.
    """

    head_weight: Tensor

    def __init__(
        self, base: Any, head_weight: Tensor, *, reads_states: bool, given_size: float = 0.0
    ) -> None:
        super().__init__()
        config = base.config
        self.layers = base.model.layers
        self.norm = base.model.norm
        self.reads_states = reads_states
        self._rotary = [base.model.rotary_emb]  # in a list: its tables are no weights of the student
        self.register_buffer("head_weight", head_weight, persistent=False)
        if reads_states:
            hidden_size = config.hidden_size
            self.embed_norm = nn.RMSNorm(hidden_size, eps=config.rms_norm_eps)
            self.state_norm = nn.RMSNorm(hidden_size, eps=config.rms_norm_eps)
            self.input_proj = nn.Linear(2 * hidden_size, hidden_size, bias=False)
            self._start(given_size)

    @torch.no_grad()
    def _start(self, given_size: float) -> None:
        """The layers were made for hidden states: begin with such."""
        hidden_size = self.input_proj.out_features
        self.input_proj.weight.zero_()
        self.input_proj.weight[:, hidden_size:].fill_diagonal_(1.0)
        if given_size:
            self.input_proj.weight[:, :hidden_size].fill_diagonal_(1.0)
            self.embed_norm.weight.fill_(given_size)

    def forward(self, given: Tensor, states: Tensor | None = None) -> Tensor:
        """Hidden states after the norm, [B, T, H].

        Args:
            given: [B, T, H], of the tokens. Sequences start at place 0; what follows a shorter one is ignored
                by all before it.
            states: [B, T, H], the target's hidden state of the position before, zeros at place 0; only where
                states are read.
        """
        hidden = given
        if self.reads_states:
            hidden = self.input_proj(torch.cat([self.embed_norm(given), self.state_norm(states)], dim=-1))
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        rotary = self._rotary[0](hidden, position_ids=positions)
        for layer in self.layers:
            hidden = layer(hidden, position_ids=positions, position_embeddings=rotary)
        normed: Tensor = self.norm(hidden)
        return normed
