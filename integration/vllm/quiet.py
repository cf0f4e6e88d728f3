"""vLLM as a library of a command: its log goes to stderr, and only where something is wrong."""

from __future__ import annotations

import os


def quiet_log() -> None:
    """To be called before vLLM is imported, which reads this then; what the user has set stays."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
