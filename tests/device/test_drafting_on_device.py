"""Drafting with a small model on a device: the same output, no waiting between tokens, one graph."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from toys import TOY_VOCAB, make_engine, random_prompts, run_tokens, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Tokens
from foredraft.proposers.draft_law import draw
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.proposers.drafting import DraftingRows, draft_tokens
from foredraft.verifier import SamplingBatch

CONTEXT, NUM_DRAFT_TOKENS, NUM_ROWS = 9, 4, 3
ROWS = list(range(NUM_ROWS))


def decoder_on(device: torch.device, num_rows: int, seed: int = 0) -> SlotDecoder:
    prepared = prepare_model(toy_model(num_layers=2, seed=seed).to(device))
    return SlotDecoder(prepared, num_rows, 128, 512, TOY_VOCAB)


@pytest.fixture
def draft(device: torch.device) -> SlotDecoder:
    """A decoder that has read a prompt of ``CONTEXT`` tokens in each row."""
    decoder = decoder_on(device, NUM_ROWS)
    prompt = torch.arange(NUM_ROWS * CONTEXT, device=device) % TOY_VOCAB
    decoder.forward(Tokens(prompt, ROWS, [0] * NUM_ROWS, [CONTEXT] * NUM_ROWS))
    return decoder


@pytest.fixture
def on_cuda(device: torch.device) -> Iterator[None]:
    """Only a GPU can be waited for; afterwards its warnings are off again."""
    if device.type != "cuda":
        pytest.skip("needs a GPU: FOREDRAFT_TEST_DEVICE=cuda")
    yield
    torch.cuda.set_sync_debug_mode("default")


def sampling_on(device: torch.device, temperature: float) -> SamplingBatch | None:
    if temperature == 0:
        return None
    return SamplingBatch(
        temperature=torch.full((NUM_ROWS,), temperature, device=device),
        request_keys=torch.arange(NUM_ROWS, device=device),
        block_starts=torch.full((NUM_ROWS,), CONTEXT + 1, device=device),
        top_p=torch.full((NUM_ROWS,), 0.9, device=device),
    )


def drafting_rows(decoder: SlotDecoder, temperature: float) -> DraftingRows:
    """One newest token of each row; the cache is rolled back to before it."""
    for row in ROWS:
        decoder.truncate(row, CONTEXT)
    newest = torch.arange(5, 5 + NUM_ROWS, device=decoder.device)
    return DraftingRows(
        Tokens(newest, ROWS, [CONTEXT] * NUM_ROWS, [1] * NUM_ROWS),
        None,
        [NUM_DRAFT_TOKENS] * NUM_ROWS,
        sampling_on(decoder.device, temperature),
    )


def later_steps(
    decoder: SlotDecoder, hidden: Tensor, tokens: Tokens, sampling: SamplingBatch | None
) -> Tensor:
    """What the drafting loop does after its first pass: [rows, NUM_DRAFT_TOKENS]."""
    drafted = []
    for offset in range(NUM_DRAFT_TOKENS):
        drafted.append(draw(decoder.head(hidden), None, sampling, offset).token_ids)
        if offset < NUM_DRAFT_TOKENS - 1:
            starts = [start + 1 for start in tokens.starts]
            tokens = replace(tokens, token_ids=drafted[-1], starts=starts)
            hidden = decoder.forward(tokens)
    return torch.stack(drafted, dim=1)


def test_greedy_identity_with_another_model_as_draft(device: torch.device) -> None:
    prompts, params = random_prompts(6), SamplingParams(temperature=0, max_tokens=16)
    plain = run_tokens(make_engine(decoder_on(device, 1)), prompts, params)
    for seed in (0, 1):
        proposer = DraftModelProposer(decoder_on(device, 4, seed))
        engine = make_engine(decoder_on(device, 4), proposer, num_draft_tokens=3)
        assert run_tokens(engine, prompts, params) == plain
        assert engine.metrics.num_proposer_faults == 0
        assert engine.metrics.num_accepted_tokens > 0 or seed == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_are_the_same_on_every_device(draft: SlotDecoder, temperature: float) -> None:
    on_cpu = decoder_on(torch.device("cpu"), NUM_ROWS)
    prompt = torch.arange(NUM_ROWS * CONTEXT) % TOY_VOCAB
    on_cpu.forward(Tokens(prompt, ROWS, [0] * NUM_ROWS, [CONTEXT] * NUM_ROWS))
    expected = draft_tokens(on_cpu, None, drafting_rows(on_cpu, temperature))
    drafted = draft_tokens(draft, None, drafting_rows(draft, temperature))
    assert torch.equal(drafted.token_ids.cpu(), expected.token_ids)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_steps_that_a_graph_holds_are_the_loop(draft: SlotDecoder, temperature: float) -> None:
    expected = draft_tokens(draft, None, drafting_rows(draft, temperature)).token_ids
    rows = drafting_rows(draft, temperature)
    hidden = draft.forward(rows.tokens)
    assert torch.equal(later_steps(draft, hidden, rows.tokens, rows.sampling), expected)


class Watched:
    """A decoder after whose first pass nothing may wait for the GPU."""

    def __init__(self, decoder: SlotDecoder) -> None:
        self._decoder = decoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def forward(self, tokens: Tokens, states: Tensor | None = None) -> Tensor:
        hidden = self._decoder.forward(tokens, states=states)
        torch.cuda.set_sync_debug_mode("error")
        return hidden


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_waits_between_drafted_tokens(draft: SlotDecoder, temperature: float) -> None:
    expected = draft_tokens(draft, None, drafting_rows(draft, temperature)).token_ids
    rows = drafting_rows(draft, temperature)
    drafted = draft_tokens(Watched(draft), None, rows).token_ids  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="synchroniz"):
        drafted.tolist()
    torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(drafted, expected)


@pytest.mark.usefixtures("on_cuda")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_later_steps_replay_as_one_graph(draft: SlotDecoder, temperature: float) -> None:
    expected = draft_tokens(draft, None, drafting_rows(draft, temperature)).token_ids
    rows = drafting_rows(draft, temperature)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # libraries set themselves up outside of the capture
        later_steps(draft, draft.forward(rows.tokens), rows.tokens, rows.sampling)
    torch.cuda.current_stream().wait_stream(stream)
    rows = drafting_rows(draft, temperature)
    hidden = draft.forward(rows.tokens)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        drafted = later_steps(draft, hidden, rows.tokens, rows.sampling)
    with torch.inference_mode():
        drafted.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(drafted, expected)
