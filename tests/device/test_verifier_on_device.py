"""The verifier decides the same on every device, and its law is the target's there too."""

import torch
from torch import Tensor

from foredraft.verifier import Draft, DraftProbs, SamplingBatch, request_key, uniforms, verify
from foredraft.verifier.random import Purpose


def to(device: torch.device, draft: Draft, sampling: SamplingBatch) -> tuple[Draft, SamplingBatch]:
    probs = draft.probs
    if probs is not None:
        probs = DraftProbs(probs.rows.to(device), probs.probs.to(device))
    tensors = {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in vars(sampling).items()
    }
    return Draft(draft.token_ids.to(device), draft.lengths.to(device), probs), SamplingBatch(**tensors)


def mixed_batch(generator: torch.Generator) -> tuple[Tensor, Draft, SamplingBatch]:
    """Twelve ragged requests: greedy, sampled, truncated; point mass and drawn; empty drafts."""
    num_requests, width, vocab_size = 12, 4, 50
    lengths = torch.randint(0, width + 1, (num_requests,), generator=generator)
    token_ids = torch.randint(0, vocab_size, (num_requests, width), generator=generator)
    token_ids[torch.arange(width) >= lengths[:, None]] = -1
    rows = torch.arange(0, num_requests, 2)
    draft_probs = torch.randn(len(rows), width, vocab_size, generator=generator).softmax(-1)
    temperature = torch.tensor([0.0, 1.0, 0.7] * 4)
    sampling = SamplingBatch(
        temperature=temperature,
        request_keys=torch.tensor([request_key(seed, 0, "") for seed in range(num_requests)]),
        block_starts=torch.randint(1, 100, (num_requests,), generator=generator),
        top_k=torch.tensor([0, 5, 0, 20] * 3),
        top_p=torch.tensor([1.0, 0.9] * 6),
        min_p=torch.tensor([0.0, 0.0, 0.1] * 4),
    )
    logits = torch.randn(int(lengths.sum()) + num_requests, vocab_size, generator=generator) * 2
    return logits, Draft(token_ids, lengths, DraftProbs(rows, draft_probs)), sampling


def test_random_numbers_are_the_same_everywhere(device: torch.device) -> None:
    keys, places, offsets = torch.arange(100), torch.arange(100) * 7, torch.arange(100) % 5
    on_cpu = uniforms(keys, places, offsets, Purpose.ACCEPT, 3)
    there = uniforms(keys.to(device), places.to(device), offsets.to(device), Purpose.ACCEPT, 3)
    assert torch.equal(there.cpu(), on_cpu)


def test_verdicts_are_the_same_everywhere(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        logits, draft, sampling = mixed_batch(generator)
        expected = verify(logits, draft, sampling)
        verdict = verify(logits.to(device), *to(device, draft, sampling))
        assert torch.equal(verdict.token_ids.cpu(), expected.token_ids)
        assert torch.equal(verdict.num_accepted.cpu(), expected.num_accepted)


def test_law_of_drawn_drafts(device: torch.device) -> None:
    """100 000 blocks of K = 2 with a draft unlike the target: pairs of tokens follow the target's law.

    Three emitted tokens at most; a block that ends early is continued from the target, exactly.
    """
    num_requests, width, vocab_size = 100_000, 2, 4
    generator = torch.Generator().manual_seed(1)
    target = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    draft_law = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]])
    token_ids = torch.stack(
        [torch.multinomial(draft_law[pos], num_requests, True, generator=generator) for pos in range(width)],
        1,
    )
    draft = Draft(
        token_ids,
        torch.full((num_requests,), width),
        DraftProbs(torch.arange(num_requests), draft_law.expand(num_requests, width, vocab_size)),
    )
    sampling = SamplingBatch(
        temperature=torch.ones(num_requests),
        request_keys=torch.arange(num_requests),
        block_starts=torch.ones(num_requests, dtype=torch.int64),
    )
    logits = torch.cat([target, target[:1]]).log().repeat(num_requests, 1)
    verdict = verify(logits.to(device), *to(device, draft, sampling))
    tokens = verdict.token_ids.cpu()
    second = torch.multinomial(target[1], num_requests, True, generator=generator)
    second = torch.where(tokens[:, 1] >= 0, tokens[:, 1], second)
    counts = torch.bincount(tokens[:, 0] * vocab_size + second, minlength=vocab_size**2).double()
    expected = (target[0][:, None] * target[1]).flatten().double() * num_requests
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_square < 56.5, "15 degrees of freedom: exceeded by chance once in a million"
