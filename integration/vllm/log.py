"""Where the plugin writes: below vLLM's own logger, whose level and handlers it then shares."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("vllm.foredraft")

EXPLAIN_VARIABLE = "FOREDRAFT_EXPLAIN"


def explains() -> bool:
    """Whether changes of plan are to be logged: FOREDRAFT_EXPLAIN is set. Workers inherit it."""
    return bool(os.environ.get(EXPLAIN_VARIABLE))


def explain(line: str) -> None:
    """Log a change of plan, as ``--explain`` prints it on the embedded engine."""
    logger.info("explain: %s", line)
