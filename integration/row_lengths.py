"""How many leading positions of each cache row are valid: what rolling back means."""

from __future__ import annotations

from collections.abc import Sequence


class RowLengths:
    """A row's first ``lengths[row]`` positions are valid; it grows by what is written, and is cut at will."""

    def __init__(self, num_rows: int, capacity: int) -> None:
        self.capacity = capacity
        self.lengths = [0] * num_rows

    def reserve(self, rows: Sequence[int], starts: Sequence[int], counts: Sequence[int]) -> None:
        """Check that ``counts`` tokens may be written from ``starts`` on, and make them the valid end.

        Raises:
            ValueError: past the capacity, or leaving a hole behind the valid length.
        """
        for row, start, count in zip(rows, starts, counts, strict=True):
            if start + count > self.capacity:
                raise ValueError(f"slot {row}: {start + count} positions exceed the capacity {self.capacity}")
            if start > self.lengths[row]:
                raise ValueError(
                    f"slot {row}: position {start} lies beyond the valid length {self.lengths[row]}"
                )
        for row, start, count in zip(rows, starts, counts, strict=True):
            self.lengths[row] = start + count

    def truncate(self, row: int, length: int) -> None:
        """Keep the first ``length`` positions.

        Raises:
            ValueError: fewer are valid.
        """
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"slot {row}: cannot truncate {self.lengths[row]} positions to {length}")
        self.lengths[row] = length
