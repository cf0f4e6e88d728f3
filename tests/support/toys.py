"""Small models, tokenizers and proposers with known behaviour. No downloads, CPU, float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Decoder, DraftContext, Proposer, Tokens
from foredraft.proposers.base import Outcome, ReleaseReason
from foredraft.scheduler.speculation.contract import FixedDraftLength
from foredraft.verifier import Draft

TOY_VOCAB = 97


def toy_model(num_layers: int = 4, vocab_size: int = TOY_VOCAB, seed: int = 0) -> LlamaForCausalLM:
    """A random Llama. Weights are large enough that its choices are varied and far from ties."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval().requires_grad_(False)


SLIDING_AND_FULL = ["sliding_attention", "full_attention"] * 2
TOY_FAMILIES: dict[str, dict[str, object]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 7},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 7, "layer_types": SLIDING_AND_FULL},
    "Qwen3": {"head_dim": 32},
    "Gemma": {"head_dim": 16},
    "Gemma2": {
        "head_dim": 16,
        "sliding_window": 7,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "Gemma3": {"head_dim": 16, "sliding_window": 7, "layer_types": SLIDING_AND_FULL},
    "GPT2": {"num_key_value_heads": 4},
}
"""What a tiny model of each family needs beside its sizes; sliding windows are short enough to matter."""


def family_model(family: str, num_layers: int = 4, **changes: object) -> transformers.PreTrainedModel:
    """A random model with every bias and norm weight away from its neutral start."""
    torch.manual_seed(1)
    config_name = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    sizes = {
        "vocab_size": TOY_VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
    }
    config = getattr(transformers, config_name)(**(sizes | TOY_FAMILIES.get(family, {}) | changes))
    class_name = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    model = getattr(transformers, class_name)(config)
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name or "ln_" in name:
            weight.data += 0.3 * torch.randn_like(weight)
    return model.eval().requires_grad_(False)


def toy_decoder(
    num_rows: int = 4,
    capacity: int = 256,
    num_layers: int = 4,
    vocab_size: int = TOY_VOCAB,
    forward: str = "auto",
) -> SlotDecoder:
    """The toy model over cache slots."""
    prepared = prepare_model(toy_model(num_layers, vocab_size), forward)
    return SlotDecoder(prepared, num_rows, capacity, 512, vocab_size)


class TableDecoder:
    """A target whose logits come from a table keyed by the last token: every probability is known exactly."""

    def __init__(self, table: Tensor, num_rows: int = 4, capacity: int = 64) -> None:
        self.table = table
        self.vocab_size = table.shape[0]
        self.num_rows, self.capacity, self.max_len, self.num_layers = num_rows, capacity, capacity, 1
        self.device = torch.device("cpu")
        self.hidden_states = None
        self._lengths = [0] * num_rows

    def forward(
        self,
        tokens: Tokens,
        layers: tuple[int, int] | None = None,
        hidden: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Tensor:
        for row, start, count in zip(tokens.row_ids, tokens.starts, tokens.query_lens, strict=True):
            if start > self._lengths[row] or start + count > self.capacity:
                raise ValueError(f"row {row}: {count} tokens at {start}, {self._lengths[row]} valid")
            self._lengths[row] = start + count
        return self.table[tokens.token_ids]

    def head(self, hidden: Tensor) -> Tensor:
        return hidden

    def valid_len(self, row: int) -> int:
        return self._lengths[row]

    def truncate(self, row: int, length: int) -> None:
        self._lengths[row] = length


class ScriptedProposer(Proposer):
    """Drafts what ``continuation`` says follows the committed tokens, wrong from ``num_right`` on.

    ORACLE(k) has all tokens right, WRONG(k) none, PARTIAL(j, k) the first j. ``lengths`` gives each row of a
    batch its own length (RAGGED); 0 is EMPTY.
    """

    def __init__(
        self,
        continuation: Callable[[Sequence[int]], Sequence[int]],
        vocab_size: int = TOY_VOCAB,
        num_right: int = 1_000,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._continuation = continuation
        self._vocab_size = vocab_size
        self._num_right = num_right
        self._lengths = lengths
        self.outcomes: list[Outcome] = []
        self.live: set[str] = set()
        self.released: list[tuple[str, ReleaseReason]] = []

    def propose(self, context: DraftContext) -> Draft:
        self.live |= set(context.request_ids)
        return Draft.from_lists(
            [
                self._row(row, tokens, context.max_draft_tokens[row])
                for row, tokens in enumerate(context.token_ids)
            ]
        )

    def _row(self, row: int, tokens: Sequence[int], limit: int) -> list[int]:
        if self._lengths is not None:
            limit = min(limit, self._lengths[row % len(self._lengths)])
        drafted = list(self._continuation(tokens))[:limit]
        wrong = [(token + 1) % self._vocab_size for token in drafted[self._num_right :]]
        return drafted[: self._num_right] + wrong

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes

    def release(self, request_id: str, reason: ReleaseReason) -> None:
        self.live.discard(request_id)
        self.released.append((request_id, reason))


def oracle_of(runs: Sequence[Sequence[int]]) -> Callable[[Sequence[int]], Sequence[int]]:
    """The continuation in whichever known run (prompt and output) starts with the given tokens."""

    def continuation(tokens: Sequence[int]) -> Sequence[int]:
        for run in runs:
            if list(run[: len(tokens)]) == list(tokens):
                return run[len(tokens) :]
        return []

    return continuation


def make_engine(
    decoder: Decoder, proposer: Proposer | None = None, num_draft_tokens: int = 5, **options: object
) -> EmbeddedEngine:
    """An engine over a toy decoder."""
    return EmbeddedEngine(decoder, proposer, FixedDraftLength(num_draft_tokens), **options)


def run_tokens(
    engine: EmbeddedEngine,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
) -> list[list[int]]:
    """Output tokens of the first completion of each prompt."""
    return [output.outputs[0].token_ids for output in engine.generate(prompts, params)]


def byte_tokenizer(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """One token per byte (ids 0-255) and ``<end>`` (256), so that characters can be split across tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = chat_template
    return fast


def random_prompts(
    count: int, vocab_size: int = TOY_VOCAB, seed: int = 0, longest: int = 40
) -> list[list[int]]:
    """Prompts of 1 to ``longest`` random tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(0, vocab_size, (length,), generator=generator).tolist() for length in lengths]
