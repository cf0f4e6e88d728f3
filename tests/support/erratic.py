"""A controller of draft lengths that changes its mind as often as it can."""

from __future__ import annotations

from foredraft.scheduler.speculation import Choice, DraftBatch, DraftLengthController, StepReport


class Erratic(DraftLengthController):
    """Reacts to each request's last outcome as strongly as can be: long after a hit, short after a miss.

    With several members the last token also says which one drafts next.
    """

    def __init__(self, max_draft_tokens: int, num_members: int = 1) -> None:
        self.max_draft_tokens = max_draft_tokens
        self._num_members = num_members
        self._wanted: dict[str, int] = {}
        self._member: dict[str, int] = {}

    def choose(self, batch: DraftBatch) -> Choice:
        wanted = [self._wanted.get(name, 2) for name in batch.request_ids]
        return Choice(
            [min(pair) for pair in zip(wanted, batch.caps(self.max_draft_tokens), strict=True)],
            [self._member.get(name, 0) for name in batch.request_ids],
        )

    def observe(self, report: StepReport) -> None:
        for outcome in report.outcomes:
            token = outcome.committed_ids[-1]
            self._wanted[outcome.request_id] = 3 if outcome.num_accepted else token % 2
            self._member[outcome.request_id] = (token + outcome.num_accepted) % self._num_members
