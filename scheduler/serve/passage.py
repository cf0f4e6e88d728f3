"""What is counted of one request."""

from __future__ import annotations

import time

from foredraft.scheduler.http.errors import ApiError
from foredraft.scheduler.serve.ingress_metrics import IngressMetrics
from foredraft.scheduler.serve.reply_watch import ReplyWatch
from foredraft.scheduler.serve.standing import Standings


class Passage:
    """One request while it is under way."""

    def __init__(self, variant: str, generates: bool, standings: Standings, metrics: IngressMetrics) -> None:
        self._variant = variant
        self._generates = generates
        self._standings = standings
        self._metrics = metrics
        self._began = time.monotonic()
        self._has_piece = False
        self.watch = ReplyWatch()
        metrics.open_requests.labels(variant).inc()

    def note_piece(self) -> None:
        """Note when the first piece of the body came."""
        if not self._has_piece:
            self._has_piece = True
            self._metrics.first_piece_seconds.labels(self._variant).observe(time.monotonic() - self._began)

    def end_with(self, error: ApiError) -> None:
        """It failed; too much load is no fault of the variant."""
        self.end(error.status, error.message if error.status >= 500 else None)

    def end(self, status: int, error: str | None) -> None:
        """Count it.

        Args:
            error: what the variant did wrong.
        """
        metrics, variant = self._metrics, self._variant
        metrics.open_requests.labels(variant).dec()
        metrics.requests.labels(variant, str(status)).inc()
        metrics.seconds.labels(variant).observe(time.monotonic() - self._began)
        metrics.tokens.labels(variant, "prompt").inc(self.watch.prompt_tokens)
        metrics.tokens.labels(variant, "completion").inc(self.watch.completion_tokens)
        if error is not None or (status < 400 and self._generates):
            self._standings.note_request(variant, error)
        if error is not None:
            metrics.errors.labels(variant, f"status_{status}").inc()
