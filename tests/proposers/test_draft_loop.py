"""The batched drafting loop equals drafting one row at a time, every token recomputed from scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from toy_drafts import CPU, FakeStates, draft_decoder, draft_forward
from toys import TOY_VOCAB, random_prompts, toy_model

from foredraft.integration.embedded import decoder as decoder_module
from foredraft.integration.embedded.attention import build_layout
from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.proposers import Tokens, drafting
from foredraft.proposers.draft_law import confidence, draw
from foredraft.proposers.drafting import DraftedRows, DraftingRows, draft_tokens, select_sampling
from foredraft.verifier import PADDING, SamplingBatch

PROMPTS = random_prompts(5, seed=2, longest=12)
ROWS = [3, 0, 4, 1, 6]  # neither adjacent nor in order
STATES = FakeStates(dict(zip(ROWS, PROMPTS, strict=True)))
# A head of some tokens, with a row of padding behind it.
HEAD_IDS = torch.arange(1, TOY_VOCAB, 2)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "reads states"])
def prepared(request: pytest.FixtureRequest) -> ForwardPass:
    return draft_forward(toy_model(2), reads_states=request.param)


@pytest.fixture
def reads_states(prepared: ForwardPass) -> bool:
    return hasattr(prepared, "_input_proj")


def sampling_of(kind: str) -> SamplingBatch | None:
    if kind == "greedy":
        return None
    greedy_rows = [1, 3] if kind == "mixed" else []
    temperature = torch.tensor([0.0 if row in greedy_rows else 0.8 + row / 10 for row in range(5)])
    lengths = torch.tensor([len(prompt) for prompt in PROMPTS])
    top_k = torch.tensor([0, 4, 9, 0, 2])
    return SamplingBatch(temperature, torch.arange(5) + 11, lengths, top_k=top_k)


def drafting_rows(
    wanted: Sequence[int], sampling: SamplingBatch | None, *, reads_states: bool
) -> DraftingRows:
    starts, counts = [0] * len(PROMPTS), [len(prompt) for prompt in PROMPTS]
    tokens = Tokens(torch.tensor([token for prompt in PROMPTS for token in prompt]), ROWS, starts, counts)
    states = STATES.read(ROWS, [-1] * len(ROWS), counts) if reads_states else None
    return DraftingRows(tokens, states, wanted, sampling)


@dataclass
class _Alone:
    token_ids: list[int]
    probs: list[Tensor]


def alone(
    prepared: ForwardPass,
    row: int,
    length: int,
    sampling: SamplingBatch | None,
    head_ids: Tensor | None = None,
    min_confidence: float = 0.0,
) -> _Alone:
    """One row, with a new cache for every token."""
    reads_states = hasattr(prepared, "_input_proj")
    tokens, drafted, probs = list(PROMPTS[row]), [], []
    states = STATES.read([ROWS[row]], [-1], [len(tokens)])
    sampling = None if sampling is None else select_sampling(sampling, torch.tensor([row]), CPU)
    for offset in range(length):
        decoder = draft_decoder(prepared, 1)
        pass_tokens = Tokens(torch.tensor(tokens), [0], [0], [len(tokens)])
        hidden = decoder.forward(pass_tokens, states=states if reads_states else None)[-1:]
        logits = decoder.head(hidden)
        logits = logits if head_ids is None else logits[:, : len(head_ids)]
        if float(confidence(logits)) < min_confidence:
            break
        drawn = draw(logits, head_ids, sampling, offset)
        drafted.append(int(drawn.token_ids))
        tokens.append(drafted[-1])
        states = torch.cat((states, hidden))
        if drawn.probs is not None and drawn.support_ids is not None:
            dense = torch.zeros(TOY_VOCAB).index_add_(0, drawn.support_ids[0], drawn.probs[0])
            probs.append(dense)
    return _Alone(drafted, probs)


def assert_as_alone(drafted: DraftedRows, expected: Sequence[_Alone]) -> None:
    for row, one in enumerate(expected):
        length = int(drafted.lengths[row])
        assert drafted.token_ids[row, :length].tolist() == one.token_ids
        assert bool((drafted.token_ids[row, length:] == PADDING).all())
        for offset, law in enumerate(one.probs):
            assert drafted.probs is not None
            assert drafted.support_ids is not None
            place = drafted.support_ids[row, offset], drafted.probs[row, offset]
            torch.testing.assert_close(torch.zeros(TOY_VOCAB).index_add_(0, *place), law)


@pytest.mark.parametrize("kind", ["greedy", "drawn", "mixed"])
@pytest.mark.parametrize("wanted", [[4, 1, 3, 5, 1], [1, 1, 1, 1, 1], [1, 6, 1, 1, 1]])
def test_rows_leave_one_by_one(
    prepared: ForwardPass, reads_states: bool, wanted: list[int], kind: str
) -> None:
    """Ragged lengths: each row as if it drafted alone, with the same law (F83, F97, F99)."""
    sampling = sampling_of(kind)
    rows = drafting_rows(wanted, sampling, reads_states=reads_states)
    drafted = draft_tokens(draft_decoder(prepared, 8), None, rows)
    assert drafted.lengths.tolist() == wanted
    assert (drafted.probs is None) == (kind == "greedy")
    assert_as_alone(drafted, [alone(prepared, row, wanted[row], sampling) for row in range(5)])


@pytest.mark.parametrize("kind", ["greedy", "mixed"])
def test_a_trimmed_head(prepared: ForwardPass, reads_states: bool, kind: str) -> None:
    """Logits stand for the tokens of ``head_ids``; those beyond are padding and never drafted (F69)."""
    sampling = sampling_of(kind)
    rows = drafting_rows([3] * 5, sampling, reads_states=reads_states)
    drafted = draft_tokens(draft_decoder(prepared, 8), HEAD_IDS, rows)
    assert set(drafted.token_ids.flatten().tolist()) <= set(HEAD_IDS.tolist())
    assert_as_alone(drafted, [alone(prepared, row, 3, sampling, HEAD_IDS) for row in range(5)])


@pytest.mark.parametrize("kind", ["greedy", "mixed"])
@pytest.mark.parametrize("min_confidence", [0.12, 0.18, 0.99])
@pytest.mark.parametrize("waits", [True, False], ids=["CPU", "GPU"])
def test_confidence_only_shortens(
    prepared: ForwardPass,
    reads_states: bool,
    min_confidence: float,
    kind: str,
    waits: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same tokens, fewer of them; on a GPU the loop does not look, and cuts them off afterwards."""
    sampling = sampling_of(kind)
    rows = drafting_rows([6, 6, 2, 6, 6], sampling, reads_states=reads_states)
    free = draft_tokens(draft_decoder(prepared, 8), None, rows)
    if not waits:
        honest = drafting._staying
        monkeypatch.setattr(
            drafting, "_staying", lambda step, *rest: honest(replace(step, confident=None), *rest)
        )
    short = draft_tokens(draft_decoder(prepared, 8), None, rows, min_confidence)
    for row, length in enumerate(short.lengths.tolist()):
        assert short.token_ids[row, :length].tolist() == free.token_ids[row, :length].tolist()
    expected = [
        alone(prepared, row, wanted, sampling, min_confidence=min_confidence)
        for row, wanted in enumerate(rows.wanted)
    ]
    assert_as_alone(short, expected)
    if min_confidence == 0.12:
        assert 0 < int(short.lengths.sum()) < int(free.lengths.sum())
    if min_confidence == 0.99:
        assert short.lengths.tolist() == [0] * 5


def test_a_layout_moved_on_equals_a_new_one(
    prepared: ForwardPass, reads_states: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rows leave, where one starts anew, and where a pass of several tokens comes between."""
    decoder = draft_decoder(prepared, 8)
    built = []

    def counted(*args: object) -> object:
        built.append(1)
        return build_layout(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(decoder_module, "build_layout", counted)
    passes = [
        ([2, 0, 1], [5, 3, 4], [1, 1, 1]),
        ([2, 0, 1], [6, 4, 5], [1, 1, 1]),  # moved on
        ([2, 0, 1], [7, 5, 6], [1, 1, 1]),  # moved on
        ([2, 1], [8, 7], [1, 1]),
        ([2, 1], [9, 8], [1, 1]),  # moved on
        ([1, 2], [9, 10], [1, 1]),
        ([1, 2], [10, 7], [1, 1]),
        ([1, 2], [11, 8], [1, 2]),
        ([1, 2], [12, 10], [1, 1]),
        ([1, 2], [12, 10], [1, 1]),
        ([1, 2], [13, 11], [1, 1]),  # moved on
    ]
    for rows, starts, counts in passes:
        tokens = Tokens(torch.zeros(sum(counts), dtype=torch.int64), rows, starts, counts)
        assert_same_layout(decoder, tokens)
    assert len(built) == len(passes) - 4


def assert_same_layout(decoder: SlotDecoder, tokens: Tokens) -> None:
    layout, expected = decoder.layout(tokens), build_layout(decoder.cache, tokens, CPU)
    for name in ("positions", "flat_index", "gather", "scatter"):
        one, other = getattr(layout, name), getattr(expected, name)
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    assert layout.masks == {}
    assert len(layout.groups) == len(expected.groups)
    for group, other in zip(layout.groups, expected.groups, strict=True):
        assert torch.equal(group.positions, other.positions)
        assert replace(group, positions=other.positions) == replace(other)
