"""The target's hidden states, as a draft that reads them gets them."""

from __future__ import annotations

import pytest
import torch
from toy_drafts import CPU, toy_target, trained_draft
from toys import TOY_VOCAB, make_engine, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.draft_forward import DraftForward
from foredraft.integration.embedded.state_store import StateStore
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Tokens

CAPACITY = 8


def test_states_are_read_by_row_and_position() -> None:
    """Before the first position there are zeros, not what the row before or position 0 holds."""
    store = StateStore(3, CAPACITY, 2, torch.float32, CPU)
    places = torch.arange(3 * CAPACITY)
    values = torch.stack((places // CAPACITY, places % CAPACITY), dim=1).float() + 1
    store.write([0, 1, 2], [0, 0, 0], [CAPACITY] * 3, values)
    states = store.read([2, 0, 1], [-1, 3, -1], [3, 2, 1])
    expected = [[0, 0], [3, 1], [3, 2], [1, 4], [1, 5], [0, 0]]
    assert states.tolist() == expected
    assert store.read([1], [0], [1]).tolist() == [[2, 1]], "reading changes nothing"


WIDTH = 4


def state_of(row: int, position: int) -> list[float]:
    return [row + 1, position + 1]


def states_of(row: int, start: int, count: int) -> torch.Tensor:
    """Of positions [start, start + count): [count, 2]."""
    states = [state_of(row, position) for position in range(start, start + count)]
    return torch.tensor(states, dtype=torch.float32)


@pytest.mark.parametrize("count", [1, 3, WIDTH, WIDTH + 1, 2 * WIDTH, 3 * WIDTH + 2])
@pytest.mark.parametrize("start", [0, 1, WIDTH - 1, WIDTH, 7])
def test_of_each_row_the_newest_states_are_kept(start: int, count: int) -> None:
    """Also of a pass that is longer than what is kept; the rows beside it are left alone."""
    store = StateStore(3, WIDTH, 2, torch.float32, CPU)
    store.write([0, 2], [0, 0], [WIDTH, WIDTH], torch.full((2 * WIDTH, 2), 77.0))
    if start:
        store.write([1], [0], [start], states_of(1, 0, start))
    store.write([1], [start], [count], states_of(1, start, count))
    num_kept = min(WIDTH, start + count)
    states = store.read([1], [start + count - num_kept], [num_kept])
    assert torch.equal(states, states_of(1, start + count - num_kept, num_kept))
    for row in (0, 2):
        assert torch.equal(store.read([row], [0], [WIDTH]), torch.full((WIDTH, 2), 77.0))


def test_rows_of_one_pass_may_be_longer_and_shorter_than_what_is_kept() -> None:
    """Ragged and out of order: each keeps its own newest."""
    store = StateStore(4, WIDTH, 2, torch.float32, CPU)
    rows, starts, counts = [3, 0, 2], [5, 2, 0], [9, 2, WIDTH]
    parts = [states_of(*one) for one in zip(rows, starts, counts, strict=True)]
    store.write(rows, starts, counts, torch.cat(parts))
    newest = [start + count - 1 for start, count in zip(starts, counts, strict=True)]
    expected = [state_of(row, position) for row, position in zip(rows, newest, strict=True)]
    assert store.read(rows, newest, [1] * 3).tolist() == expected
    assert torch.equal(store.read([3], [newest[0] - WIDTH + 1], [WIDTH]), parts[0][-WIDTH:])


def test_after_a_rejection_the_state_before_the_newest_token_is_there() -> None:
    """A pass over a draft wrote further, and more than what is kept at once never fits in between."""
    store = StateStore(1, WIDTH, 2, torch.float32, CPU)
    store.write([0], [0], [6], states_of(0, 0, 6))
    store.write([0], [6], [3], states_of(0, 6, 3))  # newest and two drafted tokens, both rejected
    assert store.read([0], [6], [1]).tolist() == [state_of(0, 6)]
    store.write([0], [7], [1], states_of(5, 7, 1))
    assert store.read([0], [6], [2]).tolist() == [state_of(0, 6), state_of(5, 7)]


def test_a_narrow_store_has_zeros_before_the_first_position() -> None:
    """The place of position -1 belongs to another position."""
    store = StateStore(2, WIDTH, 2, torch.float32, CPU)
    store.write([0, 1], [0, 0], [WIDTH, WIDTH], torch.full((2 * WIDTH, 2), 77.0))
    assert store.read([1, 0], [-1, -1], [2, 1]).tolist() == [[0, 0], [77, 77], [0, 0]]
    assert store.read([1], [WIDTH - 1], [1]).tolist() == [[77, 77]], "reading changes nothing"


def test_a_decoder_keeps_no_more_positions_than_it_is_told() -> None:
    """Or than it has."""
    target = toy_target(toy_model(2)).prepared
    for keep_states, width in ((3, 3), (10_000, 32)):
        decoder = SlotDecoder(target, 2, 32, 512, TOY_VOCAB, keep_states=keep_states)
        assert decoder._states is not None
        assert decoder._states.states.shape == (2 * width, 64)


def test_the_engine_keeps_the_states_of_committed_tokens() -> None:
    """Equal to the target's own, prompt in chunks or not."""
    model = toy_model(2)
    prompt = [(5 * place + 1) % TOY_VOCAB for place in range(11)]
    target = toy_target(model).prepared
    decoder = SlotDecoder(target, 2, 32, 512, TOY_VOCAB, keep_states=10_000)
    engine = make_engine(decoder, prefill_chunk=4)
    (output,) = engine.generate([prompt], SamplingParams(temperature=0, max_tokens=5))
    committed = [*prompt, *output.outputs[0].token_ids]
    expected = model.model(torch.tensor([committed])).last_hidden_state[0]
    assert decoder.hidden_states is not None
    states = decoder.hidden_states.read([0], [0], [len(committed) - 1])
    torch.testing.assert_close(states, expected[:-1], rtol=1e-4, atol=1e-4)


def test_a_trained_draft_fuses_embedding_and_state() -> None:
    """input_proj [norm(embedding), norm(state)], in that order, each with its own norm."""
    model = toy_model(1)
    draft = trained_draft(model)
    generator = torch.Generator().manual_seed(0)
    for name in ("embed_norm.weight", "state_norm.weight", "input_proj.weight"):
        draft.tensors[name] = torch.randn(draft.tensors[name].shape, generator=generator)
    forward = DraftForward(draft, toy_target(model).prepared, CPU, torch.float32)
    token_ids, states = torch.tensor([3, 50]), torch.randn(2, 64, generator=generator)

    def normed(values: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = values.pow(2).mean(-1, keepdim=True)
        return values * torch.rsqrt(mean_square + model.config.rms_norm_eps) * draft.tensors[name]

    embedded = normed(model.model.embed_tokens.weight[token_ids], "embed_norm.weight")
    fused = torch.cat((embedded, normed(states, "state_norm.weight")), dim=1)
    expected = fused @ draft.tensors["input_proj.weight"].T
    torch.testing.assert_close(forward.embed(token_ids, states), expected, rtol=1e-4, atol=1e-4)


def test_a_pass_of_some_layers_keeps_no_states() -> None:
    decoder = SlotDecoder(toy_target(toy_model(2)).prepared, 1, 8, 512, TOY_VOCAB, keep_states=10_000)
    decoder.forward(Tokens(torch.tensor([1, 2]), [0], [0], [2]), layers=(0, 1))
    assert decoder.hidden_states is not None
    assert not decoder.hidden_states.read([0], [0], [2]).any()
