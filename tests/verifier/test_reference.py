"""The batched verifier against the plain one, and against itself row by row: the same tokens."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.verifier import PADDING, Draft, DraftProbs, SamplingBatch, TokenControls, verify
from foredraft.verifier.reference import reference_verify

FORMS = ("point mass", "dense", "sparse shared", "sparse per position")


@dataclass
class Batch:
    logits: torch.Tensor
    draft: Draft
    sampling: SamplingBatch

    def only(self, row):
        """The same request alone."""
        starts = (self.draft.lengths + 1).cumsum(0) - self.draft.lengths - 1
        start, length = int(starts[row]), int(self.draft.lengths[row])
        rows = slice(start, start + length + 1)
        probs = self.draft.probs
        if probs is not None:
            entry = (probs.rows == row).nonzero().squeeze(1)
            support = probs.support_ids
            support = support[entry] if support is not None and support.dim() == 3 else support
            probs = DraftProbs(torch.zeros(len(entry), dtype=torch.int64), probs.probs[entry], support)
        one = slice(row, row + 1)
        sampling = self.sampling
        return Batch(
            self.logits[rows],
            Draft(self.draft.token_ids[one], self.draft.lengths[one], probs),
            SamplingBatch(
                *(getattr(sampling, name)[one] for name in ("temperature", "request_keys", "block_starts")),
                *(getattr(sampling, name)[one] for name in ("top_k", "top_p", "min_p")),
                controls=sampling.controls[one],
                allowed_mask=sampling.allowed_mask[rows],
            ),
        )


def random_batch(seed, form, size, num_places, vocab_size):
    """Ragged rows of every kind; drafts lean towards the target so that whole prefixes are accepted."""
    generator = torch.Generator().manual_seed(seed)

    def pick(values, count=size):
        return torch.tensor(values)[torch.randint(len(values), (count,), generator=generator)]

    lengths = torch.randint(num_places + 1, (size,), generator=generator)
    peaks = pick([1.0, 5.0])[:, None, None]
    target = torch.randn(size, num_places + 1, vocab_size, generator=generator) * peaks
    noise = torch.randn(size, num_places, vocab_size, generator=generator)
    laws = (target[:, :-1] + noise * pick([0.0, 0.0, 0.7, 3.0])[:, None, None]).softmax(-1)
    rows = (torch.rand(size, generator=generator) < 0.7).nonzero().squeeze(1)
    laws, support = restricted(laws, form, generator)
    ids = torch.multinomial(laws.flatten(0, 1), 1, generator=generator).view(size, num_places)
    tokens = ids if support is None else support.expand_as(laws).gather(2, ids[:, :, None]).squeeze(2)
    tokens = tokens.masked_fill(torch.arange(num_places) >= lengths[:, None], PADDING)
    probs = DraftProbs(rows, laws[rows], support[rows] if form == "sparse per position" else support)
    verified = torch.arange(num_places + 1) <= lengths[:, None]
    controls = [
        TokenControls((1, 2), (2, 0), presence_penalty=0.5, bad_words=[[0, 1]]) if flag else None
        for flag in (torch.rand(size, generator=generator) < 0.3).tolist()
    ]
    sampling = SamplingBatch(
        temperature=pick([0.0, 0.7, 1.0, 1.4]),
        request_keys=torch.randint(-(2**63), 2**63 - 1, (size,), generator=generator),
        block_starts=torch.randint(1, 1000, (size,), generator=generator),
        top_k=pick([0, 0, 1, 4]),
        top_p=pick([1.0, 1.0, 0.9, 0.4]),
        min_p=pick([0.0, 0.0, 0.05]),
        controls=controls,
        allowed_mask=torch.rand(int(verified.sum()), vocab_size, generator=generator) < 0.95,
    )
    sampling.allowed_mask[:, 3] = True
    return Batch(target[verified], Draft(tokens, lengths, None if form == "point mass" else probs), sampling)


def restricted(laws, form, generator):
    if form in ("point mass", "dense"):
        return laws, None
    vocab_size = laws.shape[2]
    if form == "sparse shared":
        support = torch.randperm(vocab_size, generator=generator)[: vocab_size // 2 + 1]
        laws = laws[:, :, support]
    else:
        support = laws.topk(vocab_size // 2 + 1).indices
        laws = laws.gather(2, support)
    return laws / laws.sum(2, keepdim=True), support


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("form", FORMS)
def test_equals_the_plain_verifier_and_itself_row_by_row(form, rule):
    lengths = set()

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(
        seed=st.integers(0, 10**6),
        size=st.integers(1, 5),
        num_places=st.integers(1, 5),
        vocab_size=st.sampled_from([4, 9, 40, 300]),
    )
    def check(seed, size, num_places, vocab_size):
        batch = random_batch(seed, form, size, num_places, vocab_size)
        verdict = verify(batch.logits, batch.draft, batch.sampling, rule)
        plain = reference_verify(batch.logits, batch.draft, batch.sampling, rule)
        assert torch.equal(verdict.token_ids, plain.token_ids)
        assert torch.equal(verdict.num_accepted, plain.num_accepted)
        for row in range(size):
            one = batch.only(row)
            alone = verify(one.logits, one.draft, one.sampling, rule)
            assert torch.equal(alone.token_ids[0], verdict.token_ids[row])
        lengths.update(verdict.num_accepted.tolist())

    check()
    assert max(lengths) >= 3, "examples too weak to see prefixes accepted"
