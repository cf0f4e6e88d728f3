"""Which variant serves a key."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping


def choose_variant(key: str, weights: Mapping[str, float]) -> str:
    """The variant of a key, by weighted rendezvous hashing.

    Each variant draws a number from (key, its name), stretched by its weight; the highest wins. So each gets
    its share of the keys, a key stays where it is as long as the weights do, and raising one weight, or
    leaving a variant out, moves only the keys that this variant gains or loses.

    Raises:
        ValueError: no variant has a weight.
    """
    scores = {name: _score(key, name, weight) for name, weight in weights.items() if weight > 0}
    if not scores:
        raise ValueError("no variant has a weight above 0")
    return max(scores, key=lambda name: (scores[name], name))


def _score(key: str, name: str, weight: float) -> float:
    digest = hashlib.blake2b(f"{name}\0{key}".encode(errors="surrogatepass"), digest_size=8).digest()
    uniform = (int.from_bytes(digest) + 0.5) / 2**64
    return -weight / math.log(uniform)
