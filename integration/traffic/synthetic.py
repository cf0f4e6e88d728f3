"""Texts of about a given length, for requests of which only the length was recorded."""

from __future__ import annotations

import random
import re
from functools import cache

from foredraft.integration.workloads import load_workload, workload_names

WORDS_PER_TOKEN = 0.75
"""Usual for English text and present-day vocabularies; others differ by a fifth or so."""


def synthetic_text(num_tokens: int, seed: str) -> str:
    """Words of the built-in workloads in random order; the same for the same seed."""
    count = max(1, round(num_tokens * WORDS_PER_TOKEN))
    return " ".join(random.Random(seed).choices(_words(), k=count))


@cache
def _words() -> list[str]:
    found: set[str] = set()
    for name in workload_names():
        for prompt in load_workload(name):
            found.update(re.findall(r"[A-Za-z]{2,12}", prompt.turns[0]))
    return sorted(found)
