"""Layers [first, last) of every known family: against transformers, the whole depth, and in the cache."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from toys import TOY_FAMILIES, TOY_VOCAB, family_model, make_engine, run_tokens

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Tokens
from foredraft.proposers.ngram import NgramProposer

NUM_LAYERS = 4
FUSED = ("Llama", "Qwen3")  # the others have sliding windows here, or are not fused
BOTH = [(family, "plain") for family in TOY_FAMILIES] + [(family, "fused") for family in FUSED]
UNKNOWN = ("Phi", "Olmo2")


def decoder_for(family: str, forward: str = "plain") -> SlotDecoder:
    return SlotDecoder(prepare_model(family_model(family, NUM_LAYERS), forward), 3, 64, 256, TOY_VOCAB)


def random_tokens(row_ids: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> Tokens:
    generator = torch.Generator().manual_seed(sum(starts))
    ids = torch.randint(0, TOY_VOCAB, (sum(counts),), generator=generator)
    return Tokens(ids, list(row_ids), list(starts), list(counts))


def one_row(length: int = 20) -> Tokens:
    return random_tokens([1], [0], [length])


def final_norm(model: Any) -> Any:
    base = model.base_model
    return copy.deepcopy(base.ln_f if hasattr(base, "ln_f") else base.norm)


def close(got: Tensor, expected: Tensor) -> bool:
    """Within float32 rounding of values of this size."""
    return torch.allclose(got, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize(("family", "forward"), BOTH)
def test_every_layers_state_is_transformers_own(family: str, forward: str) -> None:
    """Each exit layer E from scratch, in two chunks; the last state has the final norm behind it."""
    tokens = one_row()
    with torch.inference_mode():
        expected = family_model(family)(tokens.token_ids[None], output_hidden_states=True)
    decoder = decoder_for(family, forward)
    for exit_layer in range(1, NUM_LAYERS + 1):
        decoder.truncate(1, 0)
        first = decoder.forward(Tokens(tokens.token_ids[:12], [1], [0], [12]), (0, exit_layer))
        second = decoder.forward(Tokens(tokens.token_ids[12:], [1], [12], [8]), (0, exit_layer))
        assert close(torch.cat([first, second]), expected.hidden_states[exit_layer][0])
    assert close(decoder.head(torch.cat([first, second])), expected.logits[0])


@pytest.mark.parametrize(("family", "forward"), BOTH)
@pytest.mark.parametrize("cut", range(1, NUM_LAYERS))
def test_two_parts_are_bit_equal_to_the_whole(family: str, forward: str, cut: int) -> None:
    """Ragged rows out of order, then more tokens behind them, so that what the parts wrote is read."""
    whole, parts = decoder_for(family, forward), decoder_for(family, forward)
    for tokens in (random_tokens([2, 0], [0, 0], [9, 20]), random_tokens([0, 2, 1], [20, 9, 0], [3, 1, 5])):
        lower = parts.forward(tokens, (0, cut))
        upper = parts.forward(tokens, (cut, NUM_LAYERS), hidden=lower)
        assert torch.equal(upper, whole.forward(tokens))
    assert torch.equal(parts.cache.keys, whole.cache.keys)
    assert torch.equal(parts.cache.values, whole.cache.values)


@pytest.mark.parametrize(("family", "forward"), BOTH)
def test_a_part_writes_its_own_cache_layers(family: str, forward: str) -> None:
    decoder = decoder_for(family, forward)
    hidden = decoder.forward(one_row(), (0, 1))
    decoder.cache.keys.fill_(7.0)
    decoder.cache.values.fill_(7.0)
    decoder.forward(one_row(), (1, 3), hidden=hidden)
    for stored in (decoder.cache.keys, decoder.cache.values):
        written = (stored != 7.0).flatten(3).any(-1).any(-1)  # layer and row
        assert written.tolist() == [[False, layer in (1, 2), False] for layer in range(NUM_LAYERS)]
        assert bool((stored[:, 1, :, 20:] == 7.0).all())


@pytest.mark.parametrize(("family", "forward"), BOTH)
def test_norm_is_the_models_final_norm(family: str, forward: str) -> None:
    expected = final_norm(family_model(family))
    prepared = prepare_model(family_model(family), forward)
    states = 3.0 * torch.randn(5, prepared.hidden_size, generator=torch.Generator().manual_seed(0))
    assert close(prepared.norm(states), expected(states))
    assert prepared.why_whole_depth_only is None


@pytest.mark.parametrize("family", TOY_FAMILIES)
@pytest.mark.parametrize("layers", [(0, NUM_LAYERS + 1), (-1, 2), (2, 2), (3, 1)])
def test_layers_that_the_model_does_not_have(family: str, layers: tuple[int, int]) -> None:
    decoder = decoder_for(family)
    hidden = torch.zeros(20, decoder.prepared.hidden_size)
    with pytest.raises(ValueError, match=rf"layers \[0, 4\), not \[{layers[0]}, {layers[1]}\)"):
        decoder.forward(one_row(), layers, hidden=hidden)


@pytest.mark.parametrize("family", UNKNOWN)
def test_a_family_outside_the_table_runs_whole_and_says_why(family: str) -> None:
    expected = family_model(family)(one_row().token_ids[None]).logits[0]
    decoder = decoder_for(family)
    reason = decoder.prepared.why_whole_depth_only
    assert reason is not None
    assert f"'{family.lower()}'" in reason
    assert "llama" in reason
    assert "gpt2" in reason
    assert close(decoder.head(decoder.forward(one_row())), expected)
    with pytest.raises(ValueError, match=rf"layers \[0, 2\) of 4: .*'{family.lower()}'"):
        decoder.forward(one_row(), (0, 2))
    with pytest.raises(ValueError, match=f"norm: .*'{family.lower()}'"):
        decoder.prepared.norm(torch.zeros(1, decoder.prepared.hidden_size))


@pytest.mark.parametrize("family", UNKNOWN)
def test_engines_run_a_family_outside_the_table(family: str) -> None:
    """Speculation without a part of the depth is not less than before."""
    prompts, params = [one_row(6).token_ids.tolist()] * 2, SamplingParams(temperature=0, max_tokens=8)
    outputs = [
        run_tokens(make_engine(decoder_for(family), proposer), prompts, params)
        for proposer in (None, NgramProposer(1, 3))
    ]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("family", TOY_FAMILIES)
def test_two_decoders_on_one_model_do_not_disturb_each_other(family: str) -> None:
    """F177: interleaved between the parts of a pass, with other lengths; and the model is left as it was."""
    prepared = prepare_model(family_model(family), "plain")
    before = {name: tensor.clone() for name, tensor in buffers_and_weights(prepared).items()}
    alone = decoder_for(family)
    first, second = (SlotDecoder(prepared, 3, 64, 256, TOY_VOCAB) for _ in range(2))
    long, short = random_tokens([0, 1], [0, 0], [30, 11]), one_row(5)
    upper = first.forward(long, (0, 2))
    lower = second.forward(short, (0, 3))
    upper = first.forward(long, (2, NUM_LAYERS), hidden=upper)
    lower = second.forward(short, (3, NUM_LAYERS), hidden=lower)
    assert torch.equal(upper, alone.forward(long))
    alone.truncate(1, 0)
    assert torch.equal(lower, alone.forward(short))
    after = buffers_and_weights(prepared)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def buffers_and_weights(prepared: Any) -> dict[str, Tensor]:
    model = prepared._model
    return dict(model.named_parameters()) | dict(model.named_buffers())


def test_dropout_is_off_in_a_model_that_was_training() -> None:
    """GPT-2 drops a tenth of its embeddings by default."""
    expected = family_model("GPT2")(one_row().token_ids[None]).logits[0]
    prepared = prepare_model(family_model("GPT2").train(), "plain")
    decoder = SlotDecoder(prepared, 3, 64, 256, TOY_VOCAB)
    assert close(decoder.head(decoder.forward(one_row())), expected)


def test_gpt2_scales_attention_by_layer_also_in_a_part() -> None:
    changed = {"scale_attn_by_inverse_layer_idx": True}
    with torch.inference_mode():
        states = family_model("GPT2", **changed)(one_row().token_ids[None], output_hidden_states=True)
    prepared = prepare_model(family_model("GPT2", **changed), "plain")
    decoder = SlotDecoder(prepared, 3, 64, 256, TOY_VOCAB)
    assert close(decoder.forward(one_row(), (0, 3)), states.hidden_states[3][0])
