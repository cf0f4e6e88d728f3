"""``foredraft align``: how well a proposer fits its target on given prompts, and what it would gain."""

from foredraft.integration.align.command import align

__all__ = ["align"]
