"""The search for the lengths, and the members that draft them, that emit most tokens per second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foredraft.scheduler.speculation.drafting_cost import FIXED, PER_ASKED, PER_STEP
from foredraft.scheduler.speculation.request_rows import Floats, Ints

PRICES = np.array([0.0, 0.06, 0.15, 0.3, 0.5, 0.75])
"""Accepted tokens that a token more in the pass must be worth."""


@dataclass(frozen=True)
class Plan:
    """A way to draft.

    Attributes:
        price: what a token must be worth, an index of ``PRICES``.
        depths: [M], drafting steps of each member at most; 0 = it does not draft.
    """

    price: int
    depths: tuple[int, ...]

    @property
    def drafts(self) -> bool:
        """Whether anybody does."""
        return any(self.depths)


@dataclass(frozen=True)
class Offers:
    """What B requests bring by option and length; an option is a member of the proposer, or an arm.

    Attributes:
        emitted: [B, O, K + 1] accepted tokens, less what it costs to take up drafting; -inf = not possible.
        drafted: [B, O, K + 1] tokens drafted.
    """

    emitted: Floats
    drafted: Floats

    def of(self, options: Ints) -> Offers:
        """Of the options [B, M] of each request alone."""
        requests = np.arange(len(options))[:, None]
        return Offers(self.emitted[requests, options], self.drafted[requests, options])


@dataclass(frozen=True)
class Costs:
    """Seconds of a step.

    Attributes:
        pass_s: of the target pass, by tokens drafted for all requests; elementwise.
        drafting: [M, 4], ``DraftingCost.costs`` of each member.
    """

    pass_s: Callable[[Floats], Floats]
    drafting: Floats


def offers(accepted: Floats, drafted: Floats, caps: Ints, entry_tokens: Floats) -> Offers:
    """Sums over the places.

    Args:
        accepted, drafted: [B, O, K], see ``AcceptanceEstimator.yields``.
        caps: [B, O] longest lengths.
        entry_tokens: [B, O] what it costs to take up drafting, in emitted tokens.
    """
    num_requests, num_options, num_places = accepted.shape
    shape = (num_requests, num_options, num_places + 1)
    emitted_by, drafted_by = np.zeros(shape), np.zeros(shape)
    np.cumsum(accepted, axis=2, out=emitted_by[:, :, 1:])
    np.cumsum(drafted, axis=2, out=drafted_by[:, :, 1:])
    emitted_by[:, :, 1:] -= entry_tokens[:, :, None]
    emitted_by[np.arange(num_places + 1) > caps[:, :, None]] = -np.inf
    return Offers(emitted_by, drafted_by)


def depths_up_to(longest: int) -> Ints:
    """Depths worth telling apart: all up to 4, then in steps of about a quarter."""
    depths = [*range(1, min(longest, 4) + 1)]
    while depths[-1] < longest:
        depths.append(min(longest, depths[-1] + max(2, depths[-1] // 4)))
    return np.array(depths, dtype=np.int64)


@dataclass(frozen=True)
class Lengths:
    """[B, O]: the best length of each request and option under a plan, and what it is worth in tokens."""

    lengths: Ints
    worth: Floats


def lengths_under(offered: Offers, price: int, depths: Ints) -> Lengths:
    """Of every option, drafting ``depths`` [O] steps at most."""
    value = offered.emitted - PRICES[price] * offered.drafted
    value[:, np.arange(value.shape[2]) > depths[:, None]] = -np.inf
    return Lengths(value.argmax(axis=2), value.max(axis=2))


def rate(plan: Plan, offered: Offers, costs: Costs) -> float:
    """Predicted tokens per second of a plan; the options are the members."""
    num_requests = len(offered.emitted)
    found = lengths_under(offered, plan.price, np.array(plan.depths))
    requests, members = np.arange(num_requests), found.worth.argmax(axis=1)
    lengths = found.lengths[requests, members]
    num_emitted = num_requests + offered.emitted[requests, members, lengths].sum()
    num_drafted = offered.drafted[requests, members, lengths].sum()
    seconds = float(costs.pass_s(num_drafted))
    for member, cost in enumerate(costs.drafting):
        asked = lengths[members == member]
        if asked.any():
            seconds += float(cost[:3] @ (1.0, asked.max(), asked.sum()))
    return float(num_emitted / seconds)


def solo_lengths(offered: Offers, added_s: Floats, tokens_per_s: float) -> Lengths:
    """Of every option, if one request takes it while the others go on at ``tokens_per_s``.

    Args:
        added_s: [O, K], seconds that drafts of 1 to K tokens add to a step.
    """
    value = offered.emitted.copy()
    value[:, :, 1:] -= added_s * tokens_per_s
    return Lengths(value.argmax(axis=2), value.max(axis=2))


def plain_rate(offered: Offers, costs: Costs) -> float:
    """The same without drafts."""
    return len(offered.emitted) / float(costs.pass_s(np.zeros(())))


def best_plan(offered: Offers, costs: Costs, depths: Ints) -> tuple[Plan, float]:
    """The best plan of one member, and of that with others beside it as far as they add to it; its rate.

    For given depths the best lengths maximise emitted - price * drafted tokens at some price, request by
    request: the price is scanned instead of the lengths of B requests.
    """
    table = _Table.of(offered, costs, depths)
    rates = table.rates(costs)
    best = int(rates.argmax())
    member, price, place = np.unravel_index(best, rates.shape)
    mix = _Mix.of(table, int(member), int(price), int(place))
    plain, best_rate = plain_rate(offered, costs), float(rates.ravel()[best])
    if best_rate <= plain:
        return Plan(0, (0,) * len(costs.drafting)), plain
    for other in range(len(costs.drafting)):
        if other != member:
            mix, best_rate = mix.with_member(table, costs, other, best_rate)
    return Plan(int(price), tuple(mix.depths)), best_rate


@dataclass(frozen=True)
class _Table:
    """What request b brings with member m at price p and depth d, all [B, M, P, D] but ``depths`` [D].

    ``worth`` in tokens at the price; ``asked_s`` = seconds that grow with the tokens asked for.
    """

    depths: Ints
    overhead_s: Floats  # [M, D]
    worth: Floats
    emitted: Floats
    drafted: Floats
    asked_s: Floats

    @staticmethod
    def of(offered: Offers, costs: Costs, depths: Ints) -> _Table:
        num_requests, num_members, num_lengths = offered.emitted.shape
        value = offered.emitted[:, :, None] - PRICES[:, None] * offered.drafted[:, :, None]
        best = np.maximum.accumulate(value, axis=3)
        is_better = value[..., 1:] > best[..., :-1]
        lengths = np.maximum.accumulate(np.where(is_better, np.arange(1, num_lengths), 0), axis=3)
        lengths = lengths[..., depths - 1]
        firsts = np.arange(num_requests * num_members).reshape(num_requests, num_members, 1, 1) * num_lengths
        flat = firsts + lengths
        return _Table(
            depths,
            costs.drafting[:, FIXED, None] + costs.drafting[:, PER_STEP, None] * depths,
            best[..., depths],
            offered.emitted.ravel()[flat],
            offered.drafted.ravel()[flat],
            lengths * costs.drafting[:, PER_ASKED, None, None],
        )

    def rates(self, costs: Costs) -> Floats:
        """[M, P, D], tokens per second where one member alone drafts."""
        num_requests = len(self.worth)
        num_emitted = num_requests + self.emitted.sum(axis=0)
        pass_s = costs.pass_s(self.drafted.sum(axis=0))
        return np.asarray(num_emitted / (pass_s + self.overhead_s[:, None] + self.asked_s.sum(axis=0)))


@dataclass(frozen=True)
class _Mix:
    """Several members at once, at one price: [B] as in ``_Table``, of each request with the best of them."""

    price: int
    depths: list[int]
    overhead_s: float
    worth: Floats
    emitted: Floats
    drafted: Floats
    asked_s: Floats

    @staticmethod
    def of(table: _Table, member: int, price: int, place: int) -> _Mix:
        depths = [0] * table.worth.shape[1]
        depths[member] = int(table.depths[place])
        chosen = (slice(None), member, price, place)
        return _Mix(
            price,
            depths,
            float(table.overhead_s[member, place]),
            table.worth[chosen],
            table.emitted[chosen],
            table.drafted[chosen],
            table.asked_s[chosen],
        )

    def with_member(self, table: _Table, costs: Costs, other: int, own_rate: float) -> tuple[_Mix, float]:
        """With one member more at its best depth, where that is faster than ``own_rate``."""
        chosen = (slice(None), other, self.price)
        better = table.worth[chosen] > self.worth[:, None]  # [B, D]
        emitted = np.where(better, table.emitted[chosen], self.emitted[:, None])
        drafted = np.where(better, table.drafted[chosen], self.drafted[:, None])
        asked_s = np.where(better, table.asked_s[chosen], self.asked_s[:, None])
        seconds = costs.pass_s(drafted.sum(axis=0)) + asked_s.sum(axis=0)
        rates = (len(emitted) + emitted.sum(axis=0)) / (seconds + self.overhead_s + table.overhead_s[other])
        place = int(rates.argmax())
        if rates[place] <= own_rate:
            return self, own_rate
        depths = [*self.depths]
        depths[other] = int(table.depths[place])
        worth = np.maximum(table.worth[chosen][:, place], self.worth)
        overhead_s = self.overhead_s + float(table.overhead_s[other, place])
        mix = _Mix(
            self.price, depths, overhead_s, worth, emitted[:, place], drafted[:, place], asked_s[:, place]
        )
        return mix, float(rates[place])


def rates_by_depth(offered: Offers, costs: Costs, depths: Ints) -> Floats:
    """[M, D], tokens per second where one member alone drafts so far, at its best price."""
    return np.asarray(_Table.of(offered, costs, depths).rates(costs).max(axis=1))
