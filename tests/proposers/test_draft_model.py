"""The proposer's promises, one by one; ``test_draft_history`` tries them in company."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from toy_drafts import FakeStates, context_of, draft_decoder, draft_forward, drafted_lists
from toys import TOY_VOCAB, TableDecoder, random_prompts, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.forward import ForwardPass
from foredraft.proposers import Outcome, Tokens, draft_model
from foredraft.proposers.draft_model import DraftModelProposer
from foredraft.verifier import Draft, SamplingBatch

LONG = [(7 * place * place + 3) % TOY_VOCAB for place in range(100)]
SHORT = [5, 9, 2]


@pytest.fixture(scope="module")
def prepared() -> ForwardPass:
    return draft_forward(toy_model(1), reads_states=False)


def new_proposer(prepared: ForwardPass, **options: object) -> DraftModelProposer:
    return DraftModelProposer(draft_decoder(prepared), **options)  # type: ignore[arg-type]


def drafts_of(
    proposer: DraftModelProposer, tokens: dict[str, list[int]], limits: list[int], states: object = None
) -> list[list[int]]:
    return drafted_lists(proposer, context_of(tokens, range(len(tokens)), limits, hidden_states=states))


class CountingDecoder(SlotDecoder):
    """Notes how many tokens each pass reads."""

    def __init__(self, prepared: ForwardPass) -> None:
        super().__init__(prepared, 4, 256, 512, TOY_VOCAB)
        self.passes: list[int] = []

    def forward(
        self,
        tokens: Tokens,
        layers: tuple[int, int] | None = None,
        hidden: Tensor | None = None,
        states: Tensor | None = None,
    ) -> Tensor:
        self.passes.append(len(tokens.token_ids))
        return super().forward(tokens, layers, hidden, states)


@pytest.mark.parametrize("reads_states", [False, True])
def test_a_long_prompt_is_read_in_parts(monkeypatch: pytest.MonkeyPatch, reads_states: bool) -> None:
    """It holds up nobody: the other request drafts meanwhile; then its draft is the usual one (F95)."""
    monkeypatch.setattr(draft_model, "CATCH_UP_TOKENS", 40)
    monkeypatch.setattr(draft_model, "LONG_BACKLOG", 10)
    prepared = draft_forward(toy_model(1), reads_states=reads_states)
    decoder = CountingDecoder(prepared)
    proposer = DraftModelProposer(decoder, reads_states=reads_states)
    first, second, short = list(LONG), list(LONG[1:61]), list(SHORT)
    lengths = []
    for _ in range(6):
        tokens = {"first": first, "second": second, "short": short}
        states = FakeStates(dict(enumerate(tokens.values()))) if reads_states else None
        drafts = drafts_of(proposer, tokens, [3, 3, 3], states)
        new = DraftModelProposer(draft_decoder(prepared), reads_states=reads_states)
        monkeypatch.setattr(draft_model, "CATCH_UP_TOKENS", 1_000)
        expected = drafts_of(new, tokens, [3, 3, 3], states)
        monkeypatch.setattr(draft_model, "CATCH_UP_TOKENS", 40)
        assert [one in ([], other) for one, other in zip(drafts, expected, strict=True)] == [True] * 3
        lengths.append([len(one) for one in drafts])
        for one in (first, second, short):
            one.append(11)
    assert lengths == [[0, 0, 3], [0, 0, 3], [3, 0, 3], [3, 0, 3], [3, 3, 3], [3, 3, 3]]
    assert max(decoder.passes) <= 40 + 6


@pytest.mark.parametrize("room", [-1, 0, 1, 2, 3, 4])
def test_the_drafts_context_is_shorter(prepared: ForwardPass, room: int) -> None:
    """F71, F73, F75: as many tokens as fit, then none; the other request drafts on."""
    proposer = DraftModelProposer(SlotDecoder(prepared, 2, 32, 20, TOY_VOCAB))
    near_end = list(range(20 - room))
    for _ in range(3):
        drafts = drafts_of(proposer, {"near its end": near_end, "other": SHORT}, [3, 3])
        # The last drafted token is not read, so one more than the room.
        assert [len(one) for one in drafts] == [min(3, max(0, room + 1)), 3]


def test_tokens_that_the_draft_does_not_know(prepared: ForwardPass) -> None:
    """A target padded to more tokens may be given them: that request goes on without drafts (F63, F69)."""
    proposer = DraftModelProposer(SlotDecoder(prepared, 3, 64, 64, TOY_VOCAB))
    tokens = {"odd": [4, TOY_VOCAB, 6], "other": SHORT, "too late": [1, 2, TOY_VOCAB + 5]}
    for _ in range(2):
        assert [len(one) for one in drafts_of(proposer, tokens, [2, 2, 2])] == [0, 2, 0]
        tokens = {name: [*one, 1] for name, one in tokens.items()}


def test_what_cannot_be_read_takes_no_share_of_catching_up(
    prepared: ForwardPass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long prompts with unknown tokens used to spend the budget of every step: nobody else drafted."""
    monkeypatch.setattr(draft_model, "CATCH_UP_TOKENS", 40)
    monkeypatch.setattr(draft_model, "LONG_BACKLOG", 10)
    tokens = {"odd": [TOY_VOCAB, *LONG], "other": LONG[:30]}
    drafts = drafts_of(DraftModelProposer(SlotDecoder(prepared, 2, 256, 256, TOY_VOCAB)), tokens, [2, 2])
    assert [len(one) for one in drafts] == [0, 2]


def test_an_outcome_of_a_draft_before_the_last_is_stale(prepared: ForwardPass) -> None:
    """F93: it arrived after a later pass had failed half-way, and vouched for what that had left."""

    class FailsOnce(SlotDecoder):
        fails = False

        def forward(self, tokens: Tokens, *args: Tensor | None, **kwargs: Tensor | None) -> Tensor:  # type: ignore[override]
            if self.fails:
                self.fails = False
                ids = (tokens.token_ids + 1) % TOY_VOCAB
                super().forward(Tokens(ids, tokens.row_ids, tokens.starts, tokens.query_lens))
                raise RuntimeError("out of memory")
            return super().forward(tokens, *args, **kwargs)  # type: ignore[arg-type]

    decoder = FailsOnce(prepared, 1, 64, 64, TOY_VOCAB)
    proposer = DraftModelProposer(decoder)
    (draft,) = drafts_of(proposer, {"a": SHORT}, [4])
    committed = [*SHORT, *draft[:3], 8]
    decoder.fails = True
    with pytest.raises(RuntimeError):
        drafts_of(proposer, {"a": committed}, [4])
    proposer.observe([Outcome("a", len(SHORT), 4, 4, 3, tuple(committed[3:]))])
    assert drafts_of(proposer, {"a": committed}, [4]) == drafts_of(
        new_proposer(prepared), {"a": committed}, [4]
    )


def test_accepted_tokens_are_not_read_again() -> None:
    """After a full acceptance the last drafted token and the bonus token are new, else the newest alone."""
    table = torch.eye(TOY_VOCAB).roll(1, 1) * 9
    passes = []

    class Noting(TableDecoder):
        def forward(self, tokens: Tokens, *args: Tensor | None, **kwargs: Tensor | None) -> Tensor:  # type: ignore[override]
            passes.append(list(tokens.query_lens))
            return super().forward(tokens, *args, **kwargs)  # type: ignore[arg-type]

    proposer = DraftModelProposer(Noting(table))
    tokens = {"a": [1, 2], "b": [1, 2, 3]}
    for num_accepted in (0, 2, 3, 1):
        drafts = drafts_of(proposer, tokens, [3, 0])
        assert drafts[0] == [tokens["a"][-1] + offset for offset in (1, 2, 3)]
        committed = (*drafts[0][:num_accepted], 50 - num_accepted)
        proposer.observe([Outcome("a", len(tokens["a"]), 3, 3, num_accepted, committed)])
        tokens["a"] += committed
    assert [one for [one, *_] in passes[::3]] == [2, 1, 1, 2]


def sampling_of(lengths: list[int]) -> SamplingBatch:
    return SamplingBatch(
        temperature=torch.tensor([0.7, 0.0, 1.2, 0.0, 1.0]),
        request_keys=torch.arange(5) + 3,
        block_starts=torch.tensor(lengths),
        top_k=torch.tensor([0, 0, 7, 0, 0]),
        min_p=torch.tensor([0.0, 0.0, 0.0, 0.0, 0.2]),
    )


def one_row(sampling: SamplingBatch, row: int) -> SamplingBatch:
    return SamplingBatch(
        **{name: value[row : row + 1] for name, value in vars(sampling).items() if value is not None}
    )


def test_each_row_of_a_mixed_batch_is_as_if_alone(prepared: ForwardPass) -> None:
    """Lengths, seeds, greedy or not; laws come with the drawn rows and no other (F13, F15, F23, F97)."""
    prompts = random_prompts(5, seed=1, longest=30)
    limits = [0, 3, 5, 0, 2]
    tokens = {str(row): prompt for row, prompt in enumerate(prompts)}
    sampling = sampling_of([len(prompt) for prompt in prompts])
    rows = [2, 0, 4, 1, 3]
    proposer = DraftModelProposer(draft_decoder(prepared, num_rows=5))
    draft = proposer.propose(context_of(tokens, rows, limits, sampling))
    assert draft.lengths.tolist() == limits
    assert draft.probs is not None
    assert draft.probs.rows.tolist() == [2, 4]
    for row in (1, 2, 4):
        alone = new_proposer(prepared).propose(
            context_of({str(row): prompts[row]}, [0], [limits[row]], one_row(sampling, row))
        )
        assert draft.token_ids[row, : limits[row]].tolist() == alone.token_ids[0].tolist()
        if row != 1:
            assert_same_law(draft, [2, 4].index(row), alone, limits[row])
    assert alone.probs is not None


def assert_same_law(draft: Draft, entry: int, alone: Draft, length: int) -> None:
    assert draft.probs is not None
    assert alone.probs is not None
    torch.testing.assert_close(draft.probs.probs[entry, :length], alone.probs.probs[0])
    chosen = draft.probs.probs[entry, :length] > 0
    assert draft.probs.support_ids is not None
    assert alone.probs.support_ids is not None
    assert torch.equal(draft.probs.support_ids[entry, :length][chosen], alone.probs.support_ids[0][chosen])


def test_a_batch_of_greedy_requests_reports_no_law(prepared: ForwardPass) -> None:
    """F13: its tokens are point masses."""
    draft = new_proposer(prepared).propose(context_of({"a": SHORT, "b": [7]}, [0, 1], [2, 2]))
    assert draft.probs is None


def test_nothing_is_kept_of_a_released_request(prepared: ForwardPass) -> None:
    proposer = new_proposer(prepared)
    proposer.release("never seen", "aborted")
    for number in range(20):
        drafts_of(proposer, {f"request {number}": SHORT}, [2])
        proposer.release(f"request {number}", "finished")
        proposer.release(f"request {number}", "finished")
        proposer.observe([Outcome(f"request {number}", 3, 2, 2, 1, (4, 5))])
    assert proposer._requests == {}
    assert len(proposer._owners) == 1
