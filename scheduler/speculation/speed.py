"""What a batch reached lately."""

from __future__ import annotations

DECAY = 0.95
"""Per step: a mean over about 20."""


class Speed:
    """Tokens per second over the last steps of one batch size; a pause of the machine counts too."""

    def __init__(self) -> None:
        self._num_requests = 0
        self._tokens = self._seconds = 0.0

    @property
    def tokens_per_s(self) -> float:
        """0 before the first step of a batch size."""
        return self._tokens / self._seconds if self._seconds else 0.0

    def note(self, num_requests: int, num_tokens: int, seconds: float) -> None:
        """Another step; one of another batch size begins anew."""
        if num_requests != self._num_requests:
            self._num_requests, self._tokens, self._seconds = num_requests, 0.0, 0.0
        self._tokens = DECAY * self._tokens + num_tokens
        self._seconds = DECAY * self._seconds + seconds
