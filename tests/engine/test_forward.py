"""The forward passes over cache slots against transformers' own, and bit for bit where tokens hang on it."""

from collections.abc import Sequence

import pytest
import torch
import transformers
from torch import Tensor
from toys import make_engine, random_prompts, run_tokens, toy_decoder, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.embedded.linear import PackedLinear
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Tokens
from foredraft.proposers.ngram import NgramProposer

VOCAB = 97
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}


def build(family: str, **changes: object) -> transformers.PreTrainedModel:
    """A random model with every bias and norm weight away from its neutral start."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
    class_name = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    model = getattr(transformers, class_name)(config)
    for name, weight in model.named_parameters():
        if "norm" in name or "bias" in name or "ln_" in name:
            weight.data += 0.3 * torch.randn_like(weight)
    return model.eval().requires_grad_(False)


FAMILIES = {
    "llama": lambda: build("Llama"),
    "llama, one key head, biases, tied": lambda: build(
        "Llama", num_key_value_heads=1, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "llama, scaled positions": lambda: build(
        "Llama",
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "qwen2, biases": lambda: build("Qwen2"),
    "qwen3, query and key norm, own head size": lambda: build("Qwen3", head_dim=32),
    "mistral": lambda: build("Mistral", sliding_window=None),
    "mistral, sliding window": lambda: build("Mistral", sliding_window=7),
    "gpt2": lambda: build("GPT2", num_key_value_heads=4, n_embd=64, n_layer=3, n_head=4, n_positions=256),
}
FUSED = [name for name in FAMILIES if name not in ("mistral, sliding window", "gpt2")]
BOTH = [(name, "plain") for name in FAMILIES] + [(name, "fused") for name in FUSED]


def decoder_for(model: transformers.PreTrainedModel, forward: str, num_rows: int = 4) -> SlotDecoder:
    return SlotDecoder(prepare_model(model, forward), num_rows, 160, 256, VOCAB)


def random_ids(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = torch.randint(0, VOCAB, (length,), generator=generator).tolist()
    return ids


def read(decoder: SlotDecoder, rows: Sequence[int], queries: Sequence[Sequence[int]]) -> list[Tensor]:
    """Append tokens to rows in one pass; the logits of each row's tokens."""
    tokens = Tokens(
        token_ids=torch.tensor([token for query in queries for token in query]),
        row_ids=list(rows),
        starts=[decoder.valid_len(row) for row in rows],
        query_lens=[len(query) for query in queries],
    )
    return list(decoder.head(decoder.forward(tokens)).split([len(query) for query in queries]))


def close(got: Tensor, expected: Tensor) -> bool:
    """Within float32 rounding of logits of this size."""
    return torch.allclose(got, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize(("family", "forward"), BOTH)
def test_same_as_transformers(family: str, forward: str) -> None:
    """Ragged rows out of order, chunks, long queries, rollback and other tokens, row after row."""
    runs = [random_ids(length, seed=length) for length in (1, 9, 40, 150)]
    model = FAMILIES[family]()
    expected = [model(torch.tensor([run])).logits[0] for run in runs]
    decoder = decoder_for(model, forward)
    read(decoder, [2, 0, 3], [runs[2][:20], runs[0], runs[3][:3]])
    read(decoder, [3], [runs[3][3:90]])  # a long query
    wrong = [[(token + 1) % VOCAB for token in run] for run in runs]
    read(decoder, [2, 3], [wrong[2][20:26], wrong[3][90:93]])  # rejected drafts
    decoder.truncate(2, 20)
    decoder.truncate(3, 90)
    got = read(decoder, [3, 1, 2], [runs[3][90:], runs[1], runs[2][20:21]])
    assert close(got[0], expected[3][90:])
    assert close(got[1], expected[1])
    assert close(got[2], expected[2][20:21])
    decoder.truncate(0, 0)  # the row changes hands
    got = read(decoder, [2, 0], [runs[2][21:], runs[1]])
    assert close(got[0], expected[2][21:])
    assert close(got[1], expected[1])


@pytest.mark.parametrize("family", FUSED)
@pytest.mark.parametrize("width", [1, 3, 8])
def test_bit_equal_for_any_width(family: str, width: int) -> None:
    """One token at a time or (K + 1): speculation changes no logit, so it can change no token."""
    run = random_ids(60)
    single = decoder_for(FAMILIES[family](), "fused")
    blocks = decoder_for(FAMILIES[family](), "fused")
    for decoder in (single, blocks):
        read(decoder, [0], [run[:20]])
    one_by_one = torch.cat([read(single, [0], [[token]])[0] for token in run[20:]])
    step = width + 1
    in_blocks = torch.cat([read(blocks, [0], [run[at : at + step]])[0] for at in range(20, 60, step)])
    assert torch.equal(one_by_one, in_blocks)


@pytest.mark.parametrize(("width_in", "width_out"), [(576, 1152), (1536, 576), (2048, 2048)])
def test_a_packed_layer_is_bit_equal_for_one_token_and_eight(width_in: int, width_out: int) -> None:
    """Sizes of real models: the kernel for one token rounds differently there, unlike at toy sizes."""
    generator = torch.Generator().manual_seed(0)
    layer = PackedLinear(torch.randn(width_out, width_in, generator=generator), None)
    hidden = torch.randn(8, width_in, generator=generator)
    assert torch.equal(layer(hidden[:1]), layer(hidden)[:1])


@pytest.mark.parametrize("family", FUSED)
def test_bit_equal_alone_and_in_a_batch(family: str) -> None:
    """Neighbours that are longer, shorter, wider or far away change no bit."""
    run = random_ids(40)
    alone, crowded = (decoder_for(FAMILIES[family](), "fused", num_rows=8) for _ in range(2))
    expected = [read(alone, [0], [run[:30]])[0], *(read(alone, [0], [[token]])[0] for token in run[30:])]
    read(crowded, [2, 4, 7], [random_ids(100, 1), random_ids(3, 2), random_ids(60, 3)])
    got = [read(crowded, [3], [run[:30]])[0]]
    for place, token in enumerate(run[30:]):
        neighbours = [random_ids(1 + (place + row) % 6, seed=place) for row in (2, 4, 7)]
        got.append(read(crowded, [2, 3, 4, 7], [neighbours[0], [token], *neighbours[1:]])[1])
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("forward", ["plain", "fused"])
def test_nothing_of_a_rows_former_owner_is_read(forward: str) -> None:
    """F101."""
    decoder = decoder_for(build("Llama"), forward)
    (expected,) = read(decoder, [1], [random_ids(12)])
    read(decoder, [0], [random_ids(140, 5)])
    decoder.cache.keys[:, 0], decoder.cache.values[:, 0] = 1e9, 1e9
    decoder.truncate(0, 0)
    (again,) = read(decoder, [0], [random_ids(12)])
    assert torch.equal(again, expected)


def test_past_the_capacity_and_past_the_valid_end() -> None:
    decoder = toy_decoder(capacity=16)
    read(decoder, [1], [[1] * 10])
    with pytest.raises(ValueError, match="slot 1: 17 positions exceed the capacity 16"):
        read(decoder, [1], [[1] * 7])
    assert decoder.valid_len(1) == 10  # refused before anything was written
    tokens = Tokens(torch.tensor([1]), row_ids=[1], starts=[12], query_lens=[1])
    with pytest.raises(ValueError, match="position 12 lies beyond the valid length 10"):
        decoder.forward(tokens)
    with pytest.raises(ValueError, match="cannot truncate 10 positions to 11"):
        decoder.truncate(1, 11)


def test_two_engines_on_one_prepared_model() -> None:
    """F177: interleaved, each with its own cache; a third of other size afterwards."""
    prompts, params = random_prompts(4, seed=2), SamplingParams(temperature=0, max_tokens=12)
    expected = run_tokens(make_engine(toy_decoder()), prompts, params)
    prepared = prepare_model(toy_model())
    engines = [
        make_engine(SlotDecoder(prepared, 4, 64, 512, VOCAB), proposer)
        for proposer in (None, NgramProposer(1, 3))
    ]
    outputs: list[dict[str, list[int]]] = [{}, {}]
    for number, prompt in enumerate(prompts):
        for engine in engines:
            engine.add_request(str(number), prompt, params)
    while any(engine.has_unfinished_requests() for engine in engines):
        for engine, seen in zip(engines, outputs, strict=True):
            seen |= {one.request_id: one.outputs[0].token_ids for one in engine.step() if one.finished}
    assert [list(dict(sorted(seen.items())).values()) for seen in outputs] == [expected, expected]
    third = make_engine(SlotDecoder(prepared, 1, 128, 512, VOCAB))
    assert run_tokens(third, prompts, params) == expected


# ---- models that would be wrong are refused by name


def test_positions_of_a_larger_cache_on_the_same_model() -> None:
    """Tables of positions are kept with the model, and made for the capacity of the cache."""
    prepared, fresh = (prepare_model(FAMILIES["llama, scaled positions"]()) for _ in range(2))
    ids = random_ids(60)
    read(SlotDecoder(prepared, 1, 16, 256, VOCAB), [0], [ids[:16]])
    after_a_small_one = read(SlotDecoder(prepared, 1, 64, 256, VOCAB), [0], [ids])[0]
    assert torch.equal(after_a_small_one, read(SlotDecoder(fresh, 1, 64, 256, VOCAB), [0], [ids])[0])


WEAK = {"initializer_range": 0.02}  # small logits, which capping and scaling hardly change
UNSUPPORTED = {
    "mamba": (lambda: build("Mamba"), "cannot be rolled back by length"),
    "recurrent_gemma": (lambda: build("RecurrentGemma"), r"state that cannot .*recurrent"),
    "minimax": (lambda: build("MiniMax"), r"state that cannot be rolled back .*linear_attention"),
    "gemma2": (lambda: build("Gemma2", head_dim=16, **WEAK), "soft-capping"),
    "gemma2, logits alone": (
        lambda: build("Gemma2", head_dim=16, attn_logit_softcapping=None, **WEAK),
        "soft-capping of its logits",
    ),
    "gemma2, attention alone": (
        lambda: build("Gemma2", head_dim=16, final_logit_softcapping=None, **WEAK),
        "soft-capping",
    ),
    "longrope": (
        lambda: build(
            "Llama",
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
                "original_max_position_embeddings": 16,
            },
        ),
        "longrope",
    ),
    "dynamic scaling": (
        lambda: build("Llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        "dynamic",
    ),
    "cohere": (lambda: build("Cohere", **WEAK), "scaling"),
    "granite": (lambda: build("Granite", logits_scaling=8.0, **WEAK), "scaling"),
    "gpt_oss": (
        lambda: build("GptOss", head_dim=16, num_local_experts=2, num_experts_per_tok=1),
        "sinks",
    ),
    "nemotron": (lambda: build("Nemotron"), "cannot run 'nemotron'"),
}


@pytest.mark.parametrize("family", UNSUPPORTED)
@pytest.mark.parametrize("forward", ["auto", "plain"])
def test_unsupported_models_are_refused_by_name(family: str, forward: str) -> None:
    """F85, F181: state that cannot be rolled back, capped or scaled logits, attention sinks."""
    make, complaint = UNSUPPORTED[family]
    with pytest.raises(UserError, match=complaint):
        prepare_model(make(), forward)


def test_capping_and_scaling_that_are_off_do_not_matter() -> None:
    model = build("Granite", logits_scaling=1.0)
    expected = model(torch.tensor([random_ids(9)])).logits[0]
    assert close(read(decoder_for(model, "auto"), [0], [random_ids(9)])[0], expected)


@pytest.mark.parametrize("family", ["mistral, sliding window", "gpt2"])
def test_fused_says_why_not(family: str) -> None:
    with pytest.raises(UserError, match=r"'fused' cannot run this model: .*use 'plain'"):
        prepare_model(FAMILIES[family](), "fused")


@pytest.mark.parametrize("forward", ["fused", "plain"])
def test_a_model_object_can_be_prepared_once(forward: str) -> None:
    """Its layers are empty afterwards: a second engine on it wrote nonsense."""
    model = toy_model()
    prepare_model(model, forward)
    with pytest.raises(ValueError, match="prepared before"):
        prepare_model(model)
