"""The speedup that follows from costs and acceptance: of each fixed length, and of the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.scheduler.hardware_model.cost_model import CostModel
from foredraft.scheduler.speculation import AdaptiveDraftLength, Member
from foredraft.scheduler.speculation.scripted_load import Load, ScriptedMember, play

NUM_STEPS = 200
WARM_UP_STEPS = 60
CALIBRATED_SIZES = (1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)
PAYS = 1.01
"""Below, what is gained is within what the controller may spend on looking."""


@dataclass(frozen=True)
class Prediction:
    """Of one batch size.

    Attributes:
        plain_tokens_per_s: of the batch, without drafts.
        speedups: by the number of tokens drafted, from 1.
        controller: speedup that the controller reaches, once it has learned; it chooses the lengths.
        mean_length: tokens it drafts per request and step.
    """

    batch_size: int
    plain_tokens_per_s: float
    speedups: Sequence[float]
    controller: float
    mean_length: float

    @property
    def best_length(self) -> int:
        """The fixed length that is fastest; 0 = none is faster than plain decoding."""
        best = max(self.speedups)
        return self.speedups.index(best) + 1 if best > 1 else 0

    @property
    def best_speedup(self) -> float:
        """With it."""
        return max(1.0, *self.speedups)

    @property
    def pays(self) -> bool:
        """Whether speculation is worth its while."""
        return self.best_speedup > PAYS


def predict(costs: CostModel, acceptance: Sequence[float], batch_size: int, *, seed: int = 0) -> Prediction:
    """Play the controller against the costs.

    Args:
        acceptance: [K], how likely a drafted token at each place is accepted, if all before it were.
    """
    most = len(acceptance)
    member = ScriptedMember(
        lambda step, request: acceptance,
        draft_s=(costs.draft_step_s(batch_size), 0.0),
        max_draft_tokens=most,
    )
    load = Load(
        [member], lambda step: batch_size, lambda num_tokens: costs.pass_s(batch_size, num_tokens), noise=0.02
    )
    plain = load.plain_rate(0)
    owners = [0] * batch_size
    expected = [load.expected(0, owners, [length] * batch_size) for length in range(1, most + 1)]
    sizes = {size for size in CALIBRATED_SIZES if size < batch_size * (most + 1)} | {batch_size}
    controller = AdaptiveDraftLength(
        [Member("draft", most, 1, member.draft_s[0])],
        {size: costs.pass_s(batch_size, size) for size in sizes},
    )
    run = play(load, controller, NUM_STEPS, seed, best=False)
    lengths = [length for one in run.lengths[WARM_UP_STEPS:] for length in one]
    return Prediction(
        batch_size,
        plain,
        [tokens / seconds / plain for tokens, seconds in expected],
        run.against_plain(WARM_UP_STEPS),
        sum(lengths) / len(lengths),
    )


def stops_paying_at(predictions: Sequence[Prediction]) -> int | None:
    """The first batch size from which on speculation does not pay; ``None`` = it does up to the largest."""
    first = None
    for one in predictions:
        if one.pays:
            first = None
        elif first is None:
            first = one.batch_size
    return first
