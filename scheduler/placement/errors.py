"""What goes wrong when planning."""


class PlacementError(ValueError):
    """There is no such plan. The message names the field or the resource, and what is short by how much."""
