"""``foredraft simulate``: the real controller against a cost model."""

from foredraft.integration.simulate.command import simulate

__all__ = ["simulate"]
