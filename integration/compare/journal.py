"""The blocks of a run, kept as they are done, so that a killed run can go on where it was.

One JSON object a line: first what the run measures, then a block each. A line that a kill has cut off counts
as not written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from foredraft.integration.compare.progress import ProgressLine, progress_line
from foredraft.integration.errors import UserError


class CountedBlock(Protocol):
    """A block: a dataclass that knows its cell, and its number there."""

    @property
    def cell(self) -> Hashable: ...

    @property
    def number(self) -> int: ...


Block = TypeVar("Block", bound=CountedBlock)


class Journal(Generic[Block]):
    """The file of one run.

    Args:
        kind: class of the blocks.
        measured: what two runs must have in common for their blocks to belong together.

    Raises:
        UserError: the file is of another run, no journal, or cannot be read or written.
    """

    def __init__(self, path: Path, kind: type[Block], measured: Mapping[str, Any]) -> None:
        self.finished: dict[tuple[Any, int], Block] = {}
        self._blocks: TypeAdapter[Block] = TypeAdapter(kind)
        self._path = path
        try:
            lines = _whole_lines(path)
            if lines:
                self._read(lines, measured)
            else:
                lines = [json.dumps({"measured": measured}).encode() + b"\n"]
            # Written anew: a line that was cut off must not become the beginning of the next one.
            path.write_bytes(b"".join(lines))
        except OSError as error:
            raise UserError(f"--journal: {str(path)!r}: {error.strerror}") from None

    def add(self, block: Block) -> None:
        """Keep a block; one that is there already is not written again."""
        if (block.cell, block.number) in self.finished:
            return
        self.finished[block.cell, block.number] = block
        with self._path.open("ab") as file:
            file.write(self._blocks.dump_json(block) + b"\n")

    def _read(self, lines: Sequence[bytes], measured: Mapping[str, Any]) -> None:
        try:
            there = json.loads(lines[0])["measured"]
            blocks = [self._blocks.validate_json(line) for line in lines[1:]]
        except (ValueError, KeyError, TypeError, ValidationError):
            raise UserError(f"--journal: {str(self._path)!r} is no journal of a comparison") from None
        changed = [name for name in measured if there.get(name) != measured[name]]
        if changed:
            raise UserError(
                f"--journal: {str(self._path)!r} belongs to another comparison ({', '.join(changed)} "
                "differ); give the same options, or another file"
            )
        self.finished = {(block.cell, block.number): block for block in blocks}


def _whole_lines(path: Path) -> list[bytes]:
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return lines[:-1] if lines and not lines[-1].endswith(b"\n") else lines


def collect_blocks(
    measure: Callable[[Mapping[tuple[Any, int], Block], ProgressLine], Iterator[Block]],
    journal: Journal[Block] | None,
) -> tuple[list[Block], bool]:
    """The blocks of a run, and whether the user ended it before they were all there.

    Args:
        measure: yields the blocks, given those of an earlier run and the line that shows how far it is.
    """
    finished = dict(journal.finished) if journal else {}
    if finished:
        print(f"--journal: going on after {len(finished)} blocks of an earlier run", file=sys.stderr)
    blocks: list[Block] = []
    try:
        with progress_line() as progress:
            for block in measure(finished, progress):
                blocks.append(block)
                if journal:
                    journal.add(block)
    except KeyboardInterrupt:
        if not blocks:
            print("interrupted before the first block was complete: there is no result", file=sys.stderr)
        return blocks, True
    return blocks, False
