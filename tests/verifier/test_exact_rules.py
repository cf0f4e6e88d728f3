"""Both rules by exact enumeration: the law of the next K + 1 tokens, summed over everything that can happen.

Once in rationals for the rules as written down here, with wrong rules as controls, and once for the
verifier's own acceptance probabilities and residuals, which must give the target's law up to rounding.
"""

import itertools
import random
from fractions import Fraction

import pytest
import torch

from foredraft.verifier import DraftProbs
from foredraft.verifier.drawn import DrawnRows, block_acceptance, ratios, residual, running_products

VOCAB_SIZE, NUM_DRAFT_TOKENS = 3, 3


def random_laws(seed, vocab_size=VOCAB_SIZE, zeros=False):
    """A rational law for every prefix, drawn once and remembered."""
    rng, laws = random.Random(seed), {}

    def law(prefix):
        if prefix not in laws:
            weights = [rng.randint(0 if zeros else 1, 9) for _ in range(vocab_size)]
            weights[rng.randrange(vocab_size)] += 1
            laws[prefix] = [Fraction(weight, sum(weights)) for weight in weights]
        return laws[prefix]

    return law


def one_hot_laws(seed):
    rng, laws = random.Random(seed), {}

    def law(prefix):
        chosen = laws.setdefault(prefix, rng.randrange(VOCAB_SIZE))
        return [Fraction(token == chosen) for token in range(VOCAB_SIZE)]

    return law


def positive_part(target, draft, scale):
    return [max(scale * t - d, Fraction(0)) for t, d in zip(target, draft, strict=True)]


class TokenRule:
    """Accepted lengths and residual scale of one drafted tuple; the scales belong to each length."""

    def __init__(self, target, draft):
        self.target, self.draft = target, draft

    def ratio(self, drafted, pos):
        return self.target(drafted[:pos])[drafted[pos]] / self.draft(drafted[:pos])[drafted[pos]]

    def scales(self, drafted):
        return [Fraction(1)] * (len(drafted) + 1)

    def lengths(self, drafted):
        accept = [min(self.ratio(drafted, pos), Fraction(1)) for pos in range(len(drafted))]
        return first_failure(accept)

    def residual_scale(self, scale):
        return scale


class BlockRule(TokenRule):
    def scales(self, drafted):
        running = [Fraction(1)]
        for pos in range(len(drafted)):
            running.append(min(running[-1] * self.ratio(drafted, pos), Fraction(1)))
        return running

    def accept(self, drafted):
        running = self.scales(drafted)
        probabilities = []
        for length in range(1, len(drafted)):
            scale, prefix = running[length], drafted[:length]
            mass = sum(positive_part(self.target(prefix), self.draft(prefix), scale))
            denominator = mass + 1 - scale
            probabilities.append(mass / denominator if denominator else Fraction(1))
        return [*probabilities, running[-1]]

    def lengths(self, drafted):
        return last_success(self.accept(drafted))


class StopsAtTheFirstFailure(BlockRule):
    def lengths(self, drafted):
        return first_failure(self.accept(drafted))


class ResidualWithoutScale(BlockRule):
    def residual_scale(self, scale):
        return Fraction(1)


class AcceptsByTheProductEverywhere(BlockRule):
    def accept(self, drafted):
        return self.scales(drafted)[1:]


def first_failure(accept):
    """P(accepted length = 0 ... K) when acceptance ends at the first failure."""
    law, left = [], Fraction(1)
    for probability in accept:
        law.append(left * (1 - probability))
        left *= probability
    return [*law, left]


def last_success(accept):
    """P(accepted length = 0 ... K) when the longest passing prefix is taken."""
    law, left = [], Fraction(1)
    for probability in reversed(accept):
        law.append(left * probability)
        left *= 1 - probability
    return [left, *reversed(law)]


def emitted_law(rule, num_tokens, vocab_size):
    """Exact law of what one block emits, and the expected accepted length."""
    law, expected_length = {}, Fraction(0)
    for drafted in itertools.product(range(vocab_size), repeat=num_tokens):
        chance = Fraction(1)
        for pos, token in enumerate(drafted):
            chance *= rule.draft(drafted[:pos])[token]
        if chance == 0:
            continue
        for length, share in enumerate(rule.lengths(drafted)):
            expected_length += chance * share * length
            prefix = drafted[:length]
            last = rule.target(prefix)
            if length < num_tokens:
                scale = rule.residual_scale(rule.scales(drafted)[length])
                left = positive_part(last, rule.draft(prefix), scale)
                last = [weight / sum(left) for weight in left] if sum(left) else last
            for token in range(vocab_size):
                key = (*prefix, token)
                law[key] = law.get(key, Fraction(0)) + chance * share * last[token]
    return law, expected_length


def continued(law, target, length, vocab_size):
    """Extend what was emitted to ``length`` tokens by the target."""
    full = {}
    for start, chance in law.items():
        for rest in itertools.product(range(vocab_size), repeat=length - len(start)):
            probability, sequence = chance, start
            for token in rest:
                probability *= target(sequence)[token]
                sequence = (*sequence, token)
            full[sequence] = full.get(sequence, 0) + probability
    return full


def target_law(target, length, vocab_size):
    return continued({(): Fraction(1)}, target, length, vocab_size)


def is_lossless(rule, num_tokens=NUM_DRAFT_TOKENS, vocab_size=VOCAB_SIZE):
    law, _ = emitted_law(rule, num_tokens, vocab_size)
    length = num_tokens + 1
    return continued(law, rule.target, length, vocab_size) == target_law(rule.target, length, vocab_size)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rule", [TokenRule, BlockRule])
def test_both_rules_are_lossless(rule, zeros):
    for seed in range(4):
        assert is_lossless(rule(random_laws(seed, zeros=zeros), random_laws(seed + 100, zeros=zeros)))


@pytest.mark.parametrize(
    "rule", [StopsAtTheFirstFailure, ResidualWithoutScale, AcceptsByTheProductEverywhere]
)
def test_wrong_block_rules_are_flagged(rule):
    for seed in range(4):
        assert not is_lossless(rule(random_laws(seed), random_laws(seed + 100)))


def test_accepted_lengths_of_the_toy():
    """target (1/3, 2/3), draft (2/3, 1/3), two tokens."""
    third = Fraction(1, 3)
    laws = (lambda _: [third, 2 * third]), (lambda _: [2 * third, third])
    assert emitted_law(TokenRule(*laws), 2, 2)[1] == Fraction(10, 9)
    assert emitted_law(BlockRule(*laws), 2, 2)[1] == Fraction(11, 9)
    assert is_lossless(BlockRule(*laws), 2, 2)


def test_block_gains_nothing_on_a_point_mass():
    for seed in range(4):
        laws = random_laws(seed), one_hot_laws(seed)
        token, block = (emitted_law(rule(*laws), 3, VOCAB_SIZE) for rule in (TokenRule, BlockRule))
        assert token == block


def test_block_never_accepts_less_in_expectation():
    for seed in range(6):
        laws = random_laws(seed), random_laws(seed + 100)
        token, block = (emitted_law(rule(*laws), 3, VOCAB_SIZE)[1] for rule in (TokenRule, BlockRule))
        assert block >= token


class VerifierRule(TokenRule):
    """The verifier's own numbers, for every drafted tuple at once."""

    def __init__(self, target, draft, kind, form):
        super().__init__(target, draft)
        self.kind = kind
        self.tuples = list(itertools.product(range(VOCAB_SIZE), repeat=NUM_DRAFT_TOKENS))
        self.rows = drawn_rows(target, draft, self.tuples, form)
        self.ratios = ratios(self.rows)
        self.running = running_products(self.ratios)
        self.block = block_acceptance(self.rows, self.running)

    def scales(self, drafted):
        running = self.running[self.tuples.index(drafted)].tolist()
        return running if self.kind == "block" else [1.0] * len(running)

    def lengths(self, drafted):
        row = self.tuples.index(drafted)
        if self.kind == "block":
            return last_success(self.block[row].tolist())
        return first_failure(self.ratios[row].clamp(max=1).tolist())

    def law(self):
        law, expected_length = {}, 0.0
        for row, drafted in enumerate(self.tuples):
            chance = 1.0
            for pos, token in enumerate(drafted):
                chance *= float(self.draft(drafted[:pos])[token])
            for length, share in enumerate(self.lengths(drafted)):
                expected_length += chance * share * length
                last = self.last_law(row, length, self.scales(drafted)[length])
                for token, probability in enumerate(last):
                    key = (*drafted[:length], token)
                    law[key] = law.get(key, 0.0) + chance * share * probability
        return law, expected_length

    def last_law(self, row, length, scale):
        weights = self.rows.target_probs[self.rows.first_row[row] + length]
        if length < NUM_DRAFT_TOKENS:
            where = torch.tensor([row]), torch.tensor([length]), torch.tensor([scale], dtype=torch.float64)
            left = residual(self.rows, *where)[0]
            weights = left if left.sum() > 0 else weights
        return (weights.double() / weights.double().sum()).tolist()


def drawn_rows(target, draft, tuples, form):
    def table(law, length):
        return torch.tensor([[[float(p) for p in law(t[:i])] for i in range(length)] for t in tuples])

    count = len(tuples)
    probs, support = table(draft, NUM_DRAFT_TOKENS), None
    if form != "dense":
        support = torch.tensor([2, 0, 1])
        probs = probs[:, :, support]
    if form == "sparse per position":
        support = support.expand_as(probs).contiguous()
    return DrawnRows(
        token_ids=torch.tensor(tuples),
        lengths=torch.full((count,), NUM_DRAFT_TOKENS),
        draft_probs=DraftProbs(torch.arange(count), probs, support),
        entries=torch.arange(count),
        target_probs=table(target, NUM_DRAFT_TOKENS + 1).flatten(0, 1),
        first_row=torch.arange(count) * (NUM_DRAFT_TOKENS + 1),
        request_keys=torch.arange(count),
        block_starts=torch.ones(count, dtype=torch.int64),
    )


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("form", ["dense", "sparse shared", "sparse per position"])
@pytest.mark.parametrize("kind", ["block", "token"])
def test_the_verifiers_own_numbers_give_the_target_law(kind, form, zeros):
    plain = BlockRule if kind == "block" else TokenRule
    for seed in range(2):
        laws = random_laws(seed, zeros=zeros), random_laws(seed + 100, zeros=zeros)
        law, length = VerifierRule(*laws, kind, form).law()
        full = continued(law, laws[0], NUM_DRAFT_TOKENS + 1, VOCAB_SIZE)
        exact = target_law(laws[0], NUM_DRAFT_TOKENS + 1, VOCAB_SIZE)
        assert max(abs(full[key] - exact[key]) for key in exact) < 1e-6
        assert length == pytest.approx(float(emitted_law(plain(*laws), 3, VOCAB_SIZE)[1]), abs=1e-6)
