"""Where the plugin writes: below vLLM's own logger, whose level and handlers it then shares."""

from __future__ import annotations

import logging

logger = logging.getLogger("vllm.foredraft")
