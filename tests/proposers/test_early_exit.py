"""What an early exit drafts: against transformers over the whole text, and as a law; who gets no draft."""

from __future__ import annotations

import copy
import math
from collections import Counter

import pytest
import torch
from output_law import ALARM, chi_square_p
from toy_drafts import context_of, drafted_lists
from toy_exits import (
    ReferenceHead,
    exit_model,
    exit_target,
    reads_states,
    trained_exit,
    trained_head,
)
from toys import TOY_VOCAB, TableDecoder, random_prompts

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.exit_decoder import ExitDecoder
from foredraft.integration.embedded.exit_head import ExitHead, OwnHead
from foredraft.integration.embedded.forward import prepare_model
from foredraft.proposers import Tokens
from foredraft.proposers.early_exit import EarlyExitProposer
from foredraft.verifier import SamplingBatch
from foredraft.verifier.reference import reference_law

PROMPTS = random_prompts(5, seed=4, longest=30)
ROWS = [2, 0, 4, 1, 5]
HEAD_IDS = torch.arange(1, TOY_VOCAB, 3)
MODEL = exit_model()
TARGET = prepare_model(copy.deepcopy(MODEL))


def primed(head: ExitHead, prompts: list[list[int]], rows: list[int], num_unread: int = 1) -> SlotDecoder:
    """The target after reading all of each prompt but the newest tokens, and a rejected draft behind them."""
    decoder = exit_target(TARGET, head, num_rows=8)
    for row, prompt in zip(rows, prompts, strict=True):
        known = prompt[: len(prompt) - num_unread]
        read = [*known, 7, 8, 9]
        decoder.forward(Tokens(torch.tensor(read), [row], [0], [len(read)]))
        decoder.truncate(row, len(known))
    return decoder


def proposer_of(
    decoder: SlotDecoder, head: ExitHead, head_ids: torch.Tensor | None = None, **options: float
) -> EarlyExitProposer:
    return EarlyExitProposer(ExitDecoder(decoder, head), head_ids, reads_states=reads_states(head), **options)


def named(prompts: list[list[int]]) -> dict[str, list[int]]:
    return {str(number): prompt for number, prompt in enumerate(prompts)}


@pytest.mark.parametrize("trimmed", [False, True], ids=["whole head", "trimmed head"])
@pytest.mark.parametrize("states", [False, True], ids=["plain", "reads states"])
@pytest.mark.parametrize(("exit_layer", "num_blocks"), [(1, 1), (3, 1), (2, 2)])
def test_a_trained_head_drafts_what_it_should(
    exit_layer: int, num_blocks: int, states: bool, trimmed: bool
) -> None:
    """Every drafted token, with the head's own output as the state of drafted tokens; ragged (F97)."""
    file = trained_exit(
        MODEL,
        exit_layer,
        num_blocks=num_blocks,
        first_block=1,
        reads_states=states,
        head_ids=HEAD_IDS if trimmed else None,
    )
    head = trained_head(file, TARGET)
    decoder = primed(head, PROMPTS, ROWS)
    proposer = proposer_of(decoder, head, file.head_ids)
    lengths = [4, 0, 1, 3, 4]
    context = context_of(named(PROMPTS), ROWS, lengths, hidden_states=decoder.hidden_states)
    reference = ReferenceHead(MODEL, file)
    expected = [reference.draft(prompt, length) for prompt, length in zip(PROMPTS, lengths, strict=True)]
    for _ in range(2):  # drafting leaves nothing behind that changes drafting
        assert drafted_lists(proposer, context) == expected
        assert [decoder.valid_len(row) for row in ROWS] == [len(prompt) - 1 for prompt in PROMPTS]


@pytest.mark.parametrize("exit_layer", [1, 2, 4])
def test_the_own_head_drafts_what_it_should(exit_layer: int) -> None:
    """The final norm and head behind the state of that layer."""
    head = OwnHead(TARGET, exit_layer)
    proposer = proposer_of(primed(head, PROMPTS, ROWS), head)
    expected = []
    for prompt in PROMPTS:
        text = list(prompt)
        for _ in range(3):
            state = MODEL(torch.tensor([text]), output_hidden_states=True).hidden_states[exit_layer][0, -1]
            state = state if exit_layer == 4 else MODEL.model.norm(state)
            text.append(int(MODEL.lm_head(state).argmax()))
        expected.append(text[len(prompt) :])
    assert drafted_lists(proposer, context_of(named(PROMPTS), ROWS, [3] * 5)) == expected


def test_a_request_whose_row_lags_behind_gets_no_draft() -> None:
    """Only the newest token may be unread; the others draft as ever."""
    head = OwnHead(TARGET, 2)
    prompts = [prompt for prompt in random_prompts(9, seed=4) if len(prompt) > 4][:3]
    decoder = primed(head, prompts, [0, 1, 2])
    proposer = proposer_of(decoder, head)
    every = drafted_lists(proposer, context_of(named(prompts), [0, 1, 2], [3] * 3))
    assert [len(one) for one in every] == [3, 3, 3]
    decoder.truncate(1, len(prompts[1]) - 2)
    lagging = drafted_lists(proposer, context_of(named(prompts), [0, 1, 2], [3] * 3))
    assert lagging == [every[0], [], every[2]]
    assert decoder.valid_len(1) == len(prompts[1]) - 2
    decoder.truncate(0, 0), decoder.truncate(2, 0)
    assert drafted_lists(proposer, context_of(named(prompts), [0, 1, 2], [3] * 3)) == [[], [], []]


@pytest.mark.parametrize("room", [-1, 0, 1, 2, 3, 4])
def test_near_its_end_a_row_drafts_less(room: int) -> None:
    """As many tokens as fit, then none; the other request drafts on (F71, F73, F75)."""
    table = torch.eye(TOY_VOCAB).roll(1, 1) * 9
    decoder = TableDecoder(table, num_rows=2, capacity=20)
    near_end, other = list(range(20 - room)), [5, 9, 2]
    decoder._lengths = [len(near_end) - 1, len(other) - 1]
    drafts = drafted_lists(
        EarlyExitProposer(decoder), context_of({"a": near_end, "b": other}, [0, 1], [3, 3])
    )
    # The last drafted token is not read, so one more than the room.
    count = min(3, max(0, room + 1))
    assert drafts == [[near_end[-1] + offset for offset in range(1, count + 1)], [3, 4, 5]]
    assert decoder._lengths == [len(near_end) - 1, len(other) - 1]


def test_the_models_own_length_counts_too() -> None:
    decoder = TableDecoder(torch.eye(TOY_VOCAB), num_rows=1, capacity=64)
    decoder.max_len = 10
    decoder._lengths = [8]
    drafts = drafted_lists(EarlyExitProposer(decoder), context_of({"a": list(range(9))}, [0], [5]))
    assert [len(one) for one in drafts] == [2]


def test_each_pass_goes_over_the_rows_that_draft_on_alone() -> None:
    """The newest token of each, then one token at a time; nothing for a row that may not draft."""
    passes = []

    class Noting(TableDecoder):
        def forward(self, tokens: Tokens, *args: object, **kwargs: object) -> torch.Tensor:  # type: ignore[override]
            passes.append((list(tokens.row_ids), list(tokens.starts), list(tokens.query_lens)))
            return super().forward(tokens, *args, **kwargs)  # type: ignore[arg-type]

    decoder = Noting(torch.eye(TOY_VOCAB).roll(1, 1) * 9)
    decoder._lengths = [1, 2, 3, 0]
    tokens = {"a": [1, 2], "b": [1, 2, 3], "c": [1, 2, 3, 4]}
    drafts = drafted_lists(EarlyExitProposer(decoder), context_of(tokens, [0, 1, 2], [3, 0, 1]))
    assert drafts == [[3, 4, 5], [], [5]]
    assert passes == [([0, 2], [1, 3], [1, 1]), ([0], [2], [1]), ([0], [3], [1])]


NUM_DRAWS = 4_000
TABLE = torch.randn(8, 8, generator=torch.Generator().manual_seed(5)) * 1.5


def many_draws(**controls: torch.Tensor) -> SamplingBatch:
    return SamplingBatch(
        temperature=torch.full((NUM_DRAWS,), 0.8),
        request_keys=torch.arange(NUM_DRAWS) * 7919 + 1,
        block_starts=torch.ones(NUM_DRAWS, dtype=torch.int64),
        **controls,
    )


@pytest.mark.parametrize("truncated", [False, True])
def test_drafts_are_drawn_from_the_law_that_comes_with_them(truncated: bool) -> None:
    """Both places of a draft: the reported law is the one of the logits, and the tokens follow it (F15)."""
    controls = {"top_k": torch.full((NUM_DRAWS,), 4), "top_p": torch.full((NUM_DRAWS,), 0.9)}
    sampling = many_draws(**(controls if truncated else {}))
    decoder = TableDecoder(TABLE, NUM_DRAWS, capacity=8)
    tokens = {str(number): [3] for number in range(NUM_DRAWS)}
    draft = EarlyExitProposer(decoder).propose(
        context_of(tokens, range(NUM_DRAWS), [2] * NUM_DRAWS, sampling)
    )
    assert draft.probs is not None
    assert draft.probs.support_ids is not None
    assert draft.probs.rows.tolist() == list(range(NUM_DRAWS))
    dense = torch.zeros(NUM_DRAWS, 2, 8).scatter_add_(2, draft.probs.support_ids, draft.probs.probs)
    top_k, top_p = (4, 0.9) if truncated else (0, 1.0)
    laws = torch.stack([reference_law(TABLE[token], 0.8, top_k, top_p, 0.0) for token in range(8)]).float()
    first, second = draft.token_ids.unbind(1)
    torch.testing.assert_close(dense[:, 0], laws[3].expand(NUM_DRAWS, -1))
    torch.testing.assert_close(dense[:, 1], laws[first])
    pairs = {
        (one, two): float(laws[3, one] * laws[one, two])
        for one in range(8)
        for two in range(8)
        if laws[3, one] * laws[one, two] > 0
    }
    counts = Counter(zip(first.tolist(), second.tolist(), strict=True))
    assert chi_square_p(counts, pairs) > ALARM


def test_a_row_ends_before_an_unsure_token() -> None:
    """Judged by the shape of the law, greedy and drawn alike; the very first token may be the unsure one."""
    table = torch.zeros(8, 8)
    for token, following in ((3, 4), (4, 5)):
        table[token, following] = math.log(63)  # probability 0.9; after 5 all tokens are alike
    lengths = []
    for temperature in (0.0, 0.001):
        decoder = TableDecoder(table, 3, capacity=16)
        sampling = SamplingBatch(torch.full((3,), temperature), torch.arange(3), torch.ones(3).long())
        context = context_of({"a": [3], "b": [4], "c": [5]}, [0, 1, 2], [6] * 3, sampling)
        lengths.append(
            [len(one) for one in drafted_lists(EarlyExitProposer(decoder, min_confidence=0.5), context)]
        )
        assert decoder._lengths == [0, 0, 0]
    assert lengths == [[2, 1, 0]] * 2


def test_greedy_rows_report_no_law_and_drawn_ones_do() -> None:
    """F13, F21: point masses beside laws."""
    decoder = TableDecoder(TABLE, 3, capacity=16)
    sampling = SamplingBatch(torch.tensor([0.0, 0.9, 0.0]), torch.arange(3), torch.ones(3).long())
    tokens = {"a": [3], "b": [4], "c": [5]}
    draft = EarlyExitProposer(decoder).propose(context_of(tokens, [0, 1, 2], [2, 2, 2], sampling))
    assert draft.probs is not None
    assert draft.probs.rows.tolist() == [1]
    assert draft.token_ids[[0, 2], 0].tolist() == TABLE[[3, 5]].argmax(1).tolist()
    assert EarlyExitProposer(decoder).propose(context_of(tokens, [0, 1, 2], [2, 2, 2])).probs is None


def test_nobody_drafts_and_releasing_is_free() -> None:
    proposer = EarlyExitProposer(TableDecoder(TABLE, 2, capacity=8))
    assert drafted_lists(proposer, context_of({"a": [3], "b": [1]}, [0, 1], [0, 0])) == [[], []]
    proposer.release("never seen", "aborted")
    proposer.release("a", "finished")
