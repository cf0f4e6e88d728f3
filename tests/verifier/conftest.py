"""A target whose law is known exactly: its logits come from a table keyed by the last token."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from foredraft.verifier import (
    Draft,
    DraftProbs,
    Purpose,
    RowSampling,
    SamplingBatch,
    TokenControls,
    categorical,
    target_probs,
    verify,
)

VOCAB_SIZE = 4
NUM_DRAWS = 100_000
SEQUENCE_LENGTH = 4
START_TOKEN = 0

Propose = Callable[[Tensor, SamplingBatch], Draft]


def naive_law(
    logits: Sequence[float], temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> list[float]:
    """The processed law of one position, in plain Python."""
    peak = max(logits)
    weights = [math.exp((logit - peak) / temperature) for logit in logits]
    weights = [weight if weight >= min_p else 0.0 for weight in weights]
    if top_k:
        kth = sorted(weights, reverse=True)[min(top_k, len(weights)) - 1]
        weights = [weight if weight >= kth else 0.0 for weight in weights]
    kept, mass = set(), 0.0
    for token in sorted(range(len(weights)), key=lambda token: (-weights[token], token)):
        if mass < top_p * sum(weights) or top_p == 1:
            kept.add(token)
        mass += weights[token]
    weights = [weight if token in kept else 0.0 for token, weight in enumerate(weights)]
    return [weight / sum(weights) for weight in weights]


def naive_logits(logits: Sequence[float], controls: TokenControls, drafted: Sequence[int]) -> list[float]:
    """One position's logits after the controls, in plain Python; ``drafted`` precedes the position."""
    output = [*controls.output_ids, *drafted]
    edited = list(logits)
    for token in range(len(edited)):
        if controls.allowed_token_ids is not None and token not in controls.allowed_token_ids:
            edited[token] = -math.inf
        for word in controls.bad_words:
            if [*output, token][-len(word) :] == list(word):
                edited[token] = -math.inf
        if len(output) < controls.min_tokens and token in controls.stop_token_ids:
            edited[token] = -math.inf
        edited[token] += controls.logit_bias.get(token, 0.0)
        if token in output or token in controls.prompt_ids:
            up = edited[token] > 0
            edited[token] *= 1 / controls.repetition_penalty if up else controls.repetition_penalty
        edited[token] -= controls.frequency_penalty * output.count(token)
        edited[token] -= controls.presence_penalty * (token in output)
    return edited


@dataclass(frozen=True)
class World:
    """A table target and a table draft over a small vocabulary, and what a run over them is asked to be."""

    target: Tensor
    draft: Tensor
    num_draft_tokens: int = 2
    rule: str = "block"
    sampling: dict[str, Any] = field(default_factory=dict)
    controls: dict[str, Any] | None = None
    num_draws: int = NUM_DRAWS
    length: int = SEQUENCE_LENGTH

    def batch(self, request_keys: Tensor, block_starts: Tensor, outputs: list[list[int]]) -> SamplingBatch:
        size = len(request_keys)
        controls = None
        if self.controls is not None:
            controls = [TokenControls((START_TOKEN,), output, **self.controls) for output in outputs]
        return SamplingBatch(
            temperature=torch.full((size,), self.sampling.get("temperature", 1.0)),
            request_keys=request_keys,
            block_starts=block_starts,
            top_k=torch.full((size,), self.sampling.get("top_k", 0)),
            top_p=torch.full((size,), self.sampling.get("top_p", 1.0)),
            min_p=torch.full((size,), self.sampling.get("min_p", 0.0)),
            controls=controls,
        )

    def run(self, propose: Propose) -> Tensor:
        """Serve ``num_draws`` requests block by block; their first ``length`` tokens."""
        tokens = torch.zeros(self.num_draws, 1 + self.length + self.num_draft_tokens + 1, dtype=torch.int64)
        count = torch.ones(self.num_draws, dtype=torch.int64)
        while len(active := (count <= self.length).nonzero().squeeze(1)):
            starts = count[active]
            outputs: list[list[int]] = []
            if self.controls is not None:
                pairs = zip(tokens[active].tolist(), starts.tolist(), strict=True)
                outputs = [row[1:start] for row, start in pairs]
            batch = self.batch(active, starts, outputs)
            last = tokens[active, starts - 1]
            emitted, accepted = self.step(last, propose(last, batch), batch)
            place = starts[:, None] + torch.arange(emitted.shape[1])
            row, column = (emitted >= 0).nonzero().unbind(1)
            tokens[active[row], place[row, column]] = emitted[row, column]
            count[active] += accepted + 1
        return tokens[:, 1 : 1 + self.length]

    def step(self, last: Tensor, draft: Draft, batch: SamplingBatch) -> tuple[Tensor, Tensor]:
        before = torch.cat((last[:, None], draft.token_ids), dim=1)
        verified = torch.arange(before.shape[1]) <= draft.lengths[:, None]
        verdict = verify(self.target[before[verified]], draft, batch, self.rule)  # type: ignore[arg-type]
        return verdict.token_ids, verdict.num_accepted

    def law(self) -> dict[tuple[int, ...], float]:
        """The exact law of a sequence: the product of each position's naive law."""
        law = {}
        for sequence in itertools.product(range(len(self.target)), repeat=self.length):
            probability, last = 1.0, START_TOKEN
            for pos, token in enumerate(sequence):
                logits = self.target[last].tolist()
                if self.controls is not None:
                    logits = naive_logits(
                        logits, TokenControls((START_TOKEN,), **self.controls), sequence[:pos]
                    )
                probability *= naive_law(logits, **self.sampling)[token]
                last = token
            law[sequence] = probability
        return law

    def p_value(self, sequences: Tensor) -> float:
        """Chi-square of the sequences against the exact law; 0 if an impossible one appears."""
        size = len(self.target)
        codes = (sequences * torch.tensor([size**place for place in range(self.length)][::-1])).sum(1)
        counts = codes.bincount(minlength=size**self.length).tolist()
        return chi_square_p_value(counts, list(self.law().values()))


def chi_square_p_value(counts: Sequence[int], law: Sequence[float]) -> float:
    """Cells expected fewer than five times are taken together; 0 if an impossible outcome appears."""
    total = sum(counts)
    if any(count for count, probability in zip(counts, law, strict=True) if probability == 0):
        return 0.0
    cells = [(count, total * probability) for count, probability in zip(counts, law, strict=True)]
    large = [cell for cell in cells if cell[1] >= 5]
    small = [cell for cell in cells if cell[1] < 5]
    rest = (sum(cell[0] for cell in small), sum(cell[1] for cell in small))
    groups = [*large, rest] if rest[1] >= 5 else large
    statistic = sum((count - expected) ** 2 / expected for count, expected in groups)
    return float(chi2.sf(statistic, len(groups) - 1))


def drawn_chain(
    world: World, last: Tensor, batch: SamplingBatch, choose: Callable[[Tensor, int], Tensor]
) -> tuple[Tensor, Tensor]:
    """Tokens [B, K] and laws [B, K, V] of a draft that walks the draft table with ``choose``."""
    rows = RowSampling(batch.temperature, batch.top_k, batch.top_p, batch.min_p)
    tokens, laws = [], []
    for offset in range(world.num_draft_tokens):
        laws.append(target_probs(world.draft[last], rows))
        last = choose(laws[-1], offset)
        tokens.append(last)
    return torch.stack(tokens, 1), torch.stack(laws, 1)


def draw(law: Tensor, offset: int, batch: SamplingBatch) -> Tensor:
    offsets = torch.full_like(batch.block_starts, offset)
    return categorical(law, batch.request_keys, batch.block_starts, offsets, Purpose.DRAFT)


class Drafters:
    """Honest proposers over a world's draft table, one per form a draft can take."""

    @staticmethod
    def full(tokens: Tensor) -> Tensor:
        return torch.full((len(tokens),), tokens.shape[1])

    @classmethod
    def point_mass(cls, world: World) -> Propose:
        def propose(last: Tensor, batch: SamplingBatch) -> Draft:
            tokens, _ = drawn_chain(world, last, batch, lambda law, _: law.argmax(1))
            return Draft(tokens, cls.full(tokens))

        return propose

    @classmethod
    def dense(cls, world: World) -> Propose:
        def propose(last: Tensor, batch: SamplingBatch) -> Draft:
            tokens, laws = drawn_chain(world, last, batch, lambda law, offset: draw(law, offset, batch))
            return Draft(tokens, cls.full(tokens), DraftProbs(torch.arange(len(last)), laws))

        return propose

    @classmethod
    def shared_sparse(cls, world: World) -> Propose:
        """A trimmed head: token 1 cannot be drafted, and the support is not in order."""
        support = torch.tensor([token for token in range(len(world.draft)) if token != 1][::-1])
        trimmed = torch.full_like(world.draft, -math.inf)
        trimmed[:, support] = world.draft[:, support]
        dense = cls.dense(World(world.target, trimmed, world.num_draft_tokens))

        def propose(last: Tensor, batch: SamplingBatch) -> Draft:
            draft = dense(last, batch)
            assert draft.probs is not None
            probs = DraftProbs(draft.probs.rows, draft.probs.probs[:, :, support], support)
            return Draft(draft.token_ids, draft.lengths, probs)

        return propose

    @classmethod
    def sparse_per_position(cls, world: World) -> Propose:
        """The two likeliest tokens of each position, renormalised."""
        top2 = torch.full_like(world.draft, -math.inf)
        ids = world.draft.topk(2).indices
        top2.scatter_(1, ids, world.draft.gather(1, ids))
        dense = cls.dense(World(world.target, top2, world.num_draft_tokens))

        def propose(last: Tensor, batch: SamplingBatch) -> Draft:
            draft = dense(last, batch)
            assert draft.probs is not None
            before = torch.cat((last[:, None], draft.token_ids[:, :-1]), dim=1)
            probs = DraftProbs(draft.probs.rows, draft.probs.probs.gather(2, ids[before]), ids[before])
            return Draft(draft.token_ids, draft.lengths, probs)

        return propose

    @classmethod
    def mixed(cls, world: World) -> Propose:
        """Point masses in even rows, drawn drafts in odd ones; lengths 0 to K by block start."""
        point_mass, dense = cls.point_mass(world), cls.dense(world)

        def propose(last: Tensor, batch: SamplingBatch) -> Draft:
            chosen, drawn = point_mass(last, batch), dense(last, batch)
            assert drawn.probs is not None
            odd = torch.arange(len(last)) % 2 == 1
            lengths = (batch.block_starts + batch.request_keys) % (world.num_draft_tokens + 1)
            tokens = torch.where(odd[:, None], drawn.token_ids, chosen.token_ids)
            tokens[torch.arange(world.num_draft_tokens) >= lengths[:, None]] = -1
            probs = DraftProbs(odd.nonzero().squeeze(1), drawn.probs.probs[odd])
            return Draft(tokens, lengths, probs)

        return propose


@pytest.fixture(scope="session")
def world() -> World:
    """Four tokens; the draft leans the other way often enough for every kind of rejection."""
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=generator) * 1.2
    draft = target * 0.5 + torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=generator) * 1.2
    return World(target, draft)


@pytest.fixture(scope="session")
def drafters() -> type[Drafters]:
    return Drafters


@pytest.fixture(scope="session")
def chain() -> Callable[..., tuple[Tensor, Tensor]]:
    return drawn_chain


@pytest.fixture(scope="session")
def draw_token() -> Callable[[Tensor, int, SamplingBatch], Tensor]:
    return draw


@pytest.fixture(scope="session")
def p_value() -> Callable[[Sequence[int], Sequence[float]], float]:
    return chi_square_p_value


@pytest.fixture(scope="session")
def law_of() -> Callable[..., list[float]]:
    return naive_law


@pytest.fixture(scope="session")
def edited_logits() -> Callable[..., list[float]]:
    return naive_logits
