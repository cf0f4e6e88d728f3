"""The verifier at its edges, and faults reported of other verifiers."""

import math
from dataclasses import replace

import pytest
import torch

from foredraft.verifier import PADDING, Draft, DraftProbs, SamplingBatch, request_key, verify

RULES = pytest.mark.parametrize("rule", ["block", "token"])
NAN = math.nan


def sampling_of(size, temperature=1.0, **fields):
    keys = torch.tensor([request_key(None, 0, str(row)) for row in range(size)], dtype=torch.int64)
    return SamplingBatch(torch.full((size,), temperature), keys, torch.full((size,), 10), **fields)


def drawn_draft(tokens, laws):
    token_ids = torch.tensor(tokens)
    lengths = torch.full((len(tokens),), token_ids.shape[1])
    return Draft(token_ids, lengths, DraftProbs(torch.arange(len(tokens)), torch.tensor(laws)))


def emitted(verdict):
    return [[token for token in row if token != PADDING] for row in verdict.token_ids.tolist()]


def one_hot(*tokens, vocab_size=6):
    """Logits that leave one token possible in each row."""
    logits = torch.full((len(tokens), vocab_size), -math.inf)
    logits[torch.arange(len(tokens)), list(tokens)] = 0.0
    return logits


# Greedy.


@pytest.mark.parametrize(
    ("drafted", "expected"),
    [
        ([1, 2, 3], [1, 2, 3, 4]),
        ([1, 2, 0], [1, 2, 3]),
        ([0, 2, 3], [1]),
        ([1, 0, 3], [1, 2]),
        ([], [1]),
    ],
)
def test_greedy_keeps_drafts_while_they_are_the_argmax(drafted, expected):
    logits = one_hot(1, 2, 3, 4)[: len(drafted) + 1]
    verdict = verify(logits, Draft.from_lists([drafted]), sampling_of(1, temperature=0.0))
    assert emitted(verdict) == [expected]
    assert verdict.num_accepted.tolist() == [len(expected) - 1]


@RULES
def test_greedy_does_not_look_at_the_drafts_law(rule):
    """A draft argmax the target would not choose greedily is not accepted by its ratio (F13)."""
    logits = torch.tensor([[0.35, 0.60, 0.05]]).log().repeat(2, 1)
    draft = drawn_draft([[0]], [[[0.30, 0.35, 0.35]]])
    for row in range(50):
        sampling = replace(sampling_of(1, temperature=0.0), request_keys=torch.tensor([row]))
        assert emitted(verify(logits, draft, sampling, rule)) == [[1]]


# Point masses.


def test_point_masses_never_change_the_tokens(world, drafters):
    """Whatever is drafted, and however much: the tokens of plain decoding (F23)."""
    world = replace(world, num_draws=2_000, length=8, num_draft_tokens=3, sampling={"top_p": 0.9})

    def fixed(lengths_of):
        def propose(last, batch):
            tokens = (last[:, None] + torch.arange(3)) % 4
            lengths = lengths_of(batch.block_starts)
            return Draft(tokens.masked_fill(torch.arange(3) >= lengths[:, None], PADDING), lengths)

        return propose

    plain = world.run(fixed(torch.zeros_like))
    for propose in (
        drafters.point_mass(world),
        fixed(lambda starts: torch.full_like(starts, 3)),
        fixed(lambda starts: starts % 4),
    ):
        assert torch.equal(world.run(propose), plain)
    assert len(plain.unique(dim=0)) > 1_000, "requests have streams of their own (F25)"


def test_empty_drafts_beside_drawn_ones_are_plain_decoding(world, drafters):
    """A row without a draft gives the same token whatever stands beside it (F15, F97)."""
    sampling = sampling_of(4)
    logits = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
    laws = torch.full((2, 3, 6), 1 / 6)
    draft = Draft(
        torch.tensor([[1, 2, 3], [-1, -1, -1], [4, 5, 0], [-1, -1, -1]]),
        torch.tensor([3, 0, 3, 0]),
        DraftProbs(torch.tensor([0, 2]), laws),
    )
    mixed = verify(logits, draft, sampling)
    rows = torch.tensor([0, 4, 5, 9])
    plain = verify(logits[rows], Draft.from_lists([[], [], [], []]), sampling)
    assert mixed.token_ids[[1, 3], 0].tolist() == plain.token_ids[[1, 3], 0].tolist()


# Drawn drafts.


@RULES
def test_draft_equal_to_the_target_is_accepted_whole(rule):
    """The residual is all zero: no NaN, and the last token comes from the target (F15)."""
    laws = torch.rand(500, 4, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    tokens = torch.multinomial(laws[:, :-1].flatten(0, 1), 1).view(500, 3)
    draft = Draft(tokens, torch.full((500,), 3), DraftProbs(torch.arange(500), laws[:, :-1].contiguous()))
    verdict = verify(laws.flatten(0, 1).log(), draft, sampling_of(500), rule)
    assert (verdict.num_accepted == 3).sum() >= 499, "rounding may refuse one in millions"
    assert torch.equal(verdict.token_ids[:, :3], tokens)
    assert (verdict.token_ids >= 0).all()


@RULES
def test_all_zero_residual_falls_back_to_the_target(rule):
    """Refused although the draft equals the target, as rounding can do: only then is it looked at."""
    law = [0.5, 0.5, 0.0]
    draft = drawn_draft([[2]], [[law]])
    token = verify(torch.tensor([law, law]).log(), draft, sampling_of(1), rule).token_ids[0]
    assert token[0] in (0, 1)
    assert token[1] == PADDING


@RULES
def test_prefix_that_cannot_fail_is_kept(rule):
    """One token drawn from the target's own law, then an impossible one: h_1 is 0 / 0, and means 1."""
    law = [0.5, 0.5, 0.0]
    logits = torch.tensor([law] * 3).log().repeat(50, 1)
    verdict = verify(logits, drawn_draft([[0, 2]] * 50, [[law, law]] * 50), sampling_of(50), rule)
    assert verdict.num_accepted.tolist() == [1] * 50


@RULES
@pytest.mark.parametrize("kept", [0, 2, 4])
def test_replacement_comes_from_the_rejected_row(kept, rule):
    """Rows with supports of their own: the recovered token is the rejected row's (F19)."""
    logits = one_hot(0, 1, 2, 3, 4)
    drafted = [0, 1, 2, 3][:kept] + [5] * (4 - kept)
    law = torch.full((1, 4, 6), 1 / 6)
    for probs in (None, DraftProbs(torch.tensor([0]), law)):
        draft = Draft(torch.tensor([drafted]), torch.tensor([4]), probs)
        verdict = verify(logits, draft, sampling_of(1), rule)
        assert emitted(verdict) == [[0, 1, 2, 3, 4][: kept + 1]]


@RULES
def test_disjoint_supports(rule):
    draft = drawn_draft([[2, 3]], [[[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]]])
    logits = torch.tensor([[0.5, 0.5, 0, 0]] * 3).log()
    verdict = verify(logits, draft, sampling_of(1), rule)
    assert verdict.num_accepted.tolist() == [0]
    assert verdict.token_ids[0, 0] in (0, 1)


@RULES
def test_near_one_hot_laws(rule):
    tiny = 1e-38
    draft = drawn_draft([[0, 1], [1, 0]], [[[1.0, tiny]] * 2] * 2)
    logits = torch.tensor([[60.0, -60.0], [-60.0, 60.0], [0.0, 0.0]] * 2)
    verdict = verify(logits, draft, sampling_of(2), rule)
    assert verdict.token_ids[0].tolist()[:2] == [0, 1]
    assert verdict.num_accepted.tolist() == [2, 0]
    assert verdict.token_ids[1, 0] == 0


@RULES
@pytest.mark.parametrize("support", [None, [0, 1]])
def test_token_that_cannot_have_been_drawn_is_refused(support, rule):
    """Reported probability 0, or missing from the support: a proposer's fault, but no NaN and no crash."""
    law = [0.5, 0.5, 0.0] if support is None else [0.5, 0.5]
    probs = DraftProbs(
        torch.tensor([0]), torch.tensor([[law, law]]), None if support is None else torch.tensor(support)
    )
    draft = Draft(torch.tensor([[2, 0]]), torch.tensor([2]), probs)
    logits = torch.tensor([[0.2, 0.2, 0.6]] * 3).log()
    for key in range(50):
        sampling = replace(sampling_of(1), request_keys=torch.tensor([key]))
        verdict = verify(logits, draft, sampling, rule)
        assert verdict.num_accepted.tolist() == [0]
        assert emitted(verdict) == [[2]], "the residual is all on the token the draft gave nothing"


@RULES
@pytest.mark.parametrize("kind", ["greedy", "point mass", "drawn"])
@pytest.mark.parametrize("dead", [NAN, -math.inf])
def test_what_follows_an_impossible_token_is_ignored(dead, kind, rule):
    """Behind the end of a grammar the logits may be NaN, or nothing may be allowed."""
    logits = torch.tensor([[0.5, 0.5, 0.0], [0.3, 0.7, 0.0]]).log()
    logits = torch.cat((logits, torch.full((2, 3), dead))).repeat(200, 1)
    draft = Draft(torch.tensor([[0, 2, 1]]).repeat(200, 1), torch.full((200,), 3))
    if kind == "drawn":
        draft = replace(draft, probs=DraftProbs(torch.arange(200), torch.full((200, 3, 3), 1 / 3)))
    sampling = sampling_of(200, temperature=0.0 if kind == "greedy" else 1.0)
    verdict = verify(logits, draft, sampling, rule)
    assert set(verdict.num_accepted.tolist()) <= {0, 1}
    last = verdict.token_ids.gather(1, verdict.num_accepted[:, None])
    assert set(last.flatten().tolist()) <= {0, 1}
    assert verdict.num_accepted.double().mean() > 0.3


@RULES
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_what_lies_beyond_a_draft_is_ignored(form, rule):
    """An engine may verify fewer tokens than were drafted; what is behind them is left over."""
    generator = torch.Generator().manual_seed(0)
    laws = torch.rand(100, 2, 6, generator=generator).softmax(-1)
    tokens = torch.multinomial(laws.flatten(0, 1), 1, generator=generator).view(100, 2)
    support = torch.arange(6).expand(100, 2, 6).contiguous() if form == "sparse" else None
    lengths = torch.arange(100) % 2 + 1
    logits = torch.randn(int((lengths + 1).sum()), 6, generator=generator)
    rows = torch.arange(100)
    clean = verify(logits, Draft(tokens, lengths, DraftProbs(rows, laws, support)), sampling_of(100), rule)
    short = lengths == 1
    dirty_laws, dirty_tokens = laws.clone(), tokens.clone()
    dirty_laws[short, 1], dirty_tokens[short, 1] = NAN, 5
    if support is not None:
        support = support.clone()
        support[short, 1] = 10**12
    draft = Draft(dirty_tokens, lengths, DraftProbs(rows, dirty_laws, support))
    dirty = verify(logits, draft, sampling_of(100), rule)
    assert torch.equal(dirty.token_ids, clean.token_ids)
    assert torch.equal(dirty.num_accepted, clean.num_accepted)


# Shapes, dtypes, errors.


def test_no_drafts_at_all():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    for temperature in (0.0, 1.0):
        verdict = verify(logits, Draft.from_lists([[], [], []]), sampling_of(3, temperature))
        assert verdict.token_ids.shape == (3, 1)
        assert (verdict.token_ids >= 0).all()
        assert verdict.num_accepted.tolist() == [0, 0, 0]


def test_empty_batch():
    verdict = verify(torch.empty(0, 5), Draft.from_lists([]), sampling_of(0))
    assert verdict.token_ids.shape == (0, 1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_allowed_gives_padding(temperature):
    sampling = sampling_of(1, temperature, allowed_mask=torch.zeros(2, 5, dtype=torch.bool))
    verdict = verify(torch.zeros(2, 5), Draft.from_lists([[1]]), sampling)
    assert verdict.token_ids.tolist() == [[PADDING, PADDING]]
    assert verdict.num_accepted.tolist() == [0]


def test_nothing_allowed_behind_an_accepted_draft():
    """The missing bonus token must not be taken for one more match with the draft's padding."""
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[[0, 2, 3, 4], 1] = True
    verdict = verify(torch.zeros(5, 5), Draft.from_lists([[1], [1, 1]]), sampling_of(2, allowed_mask=mask))
    assert verdict.num_accepted.tolist() == [1, 2]
    assert verdict.token_ids.tolist() == [[1, PADDING, PADDING], [1, 1, 1]]


def test_vllms_limit_of_greedy_temperatures():
    logits = torch.tensor([[0.0, 1e-6, 0.0]]).expand(100, -1)
    sampling = sampling_of(100, temperature=0.9e-5)
    assert verify(logits, Draft.from_lists([[]] * 100), sampling).token_ids.unique().tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_inputs_stay_as_they_are(dtype):
    logits = torch.randn(9, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    laws = torch.full((3, 2, 40), 1 / 40)
    draft = Draft(
        torch.ones(3, 2, dtype=torch.int64), torch.full((3,), 2), DraftProbs(torch.tensor([0, 2]), laws[:2])
    )
    sampling = sampling_of(3, top_k=torch.tensor([3, 0, 0]), top_p=torch.tensor([0.5, 0.9, 1.0]))
    before = logits.clone(), draft.token_ids.clone(), laws.clone()
    for one in (draft, replace(draft, probs=None)):
        for temperature in (0.0, 1.0):
            sampling = replace(sampling, temperature=torch.full((3,), temperature))
            verdict = verify(logits, one, sampling)
            assert verdict.token_ids.dtype == verdict.num_accepted.dtype == torch.int64
    for now, then in zip((logits, draft.token_ids, laws), before, strict=True):
        assert torch.equal(now, then)


def test_bad_calls_are_refused():
    logits, draft, sampling = torch.zeros(2, 5), Draft.from_lists([[1]]), sampling_of(1)
    with pytest.raises(ValueError, match="rule must be 'block' or 'token', got 'blok'"):
        verify(logits, draft, sampling, "blok")
    with pytest.raises(ValueError, match=r"3 rows, the draft needs sum\(lengths \+ 1\) = 2"):
        verify(torch.zeros(3, 5), draft, sampling)
    with pytest.raises(ValueError, match=r"sampling\.temperature has 2 rows"):
        verify(logits, draft, sampling_of(2))
    with pytest.raises(ValueError, match=r"sampling\.controls has 2 rows"):
        verify(logits, draft, sampling_of(1, controls=[None, None]))
    with pytest.raises(ValueError, match=r"allowed_mask has shape \(1, 5\), target_logits has \(2, 5\)"):
        verify(logits, draft, sampling_of(1, allowed_mask=torch.ones(1, 5, dtype=torch.bool)))
    dense = Draft(draft.token_ids, draft.lengths, DraftProbs(torch.tensor([0]), torch.zeros(1, 1, 4)))
    with pytest.raises(ValueError, match=r"draft\.probs\.probs has shape \(1, 1, 4\), expected \(1, 1, 5\)"):
        verify(logits, dense, sampling)
    sparse = DraftProbs(torch.tensor([0]), torch.zeros(1, 1, 4), torch.zeros(1, 2, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"draft\.probs\.support_ids has shape"):
        verify(logits, replace(draft, probs=sparse), sampling)
