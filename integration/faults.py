"""What a proposer that fails costs: its draft, never the request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from foredraft.integration.metrics import EngineMetrics


class Faults:
    """Counts them, and logs the first of each kind of call."""

    def __init__(self, metrics: EngineMetrics, logger: logging.Logger) -> None:
        self._metrics, self._logger = metrics, logger
        self._logged: set[str] = set()

    @contextmanager
    def caught(self, call: str) -> Iterator[None]:
        """Go on after an exception in the block, which is a ``call`` of the proposer."""
        try:
            yield
        except Exception:
            self._metrics.num_proposer_faults += 1
            if call not in self._logged:
                self._logged.add(call)
                self._logger.exception("proposer failed in %s; its drafts are left out (logged once)", call)
