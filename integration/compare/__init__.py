"""``foredraft compare``: proposers side by side on the same prompts, paired, interleaved and checked."""

from foredraft.integration.compare.command import compare

__all__ = ["compare"]
