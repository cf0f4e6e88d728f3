"""The blocks of a run, kept as they are done, so that a killed run can go on where it was.

One JSON object a line: first what the run measures, then a block each. A line that a kill has cut off counts
as not written. One run at a time holds the file.
"""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from foredraft.integration.compare.progress import ProgressLine, progress_line
from foredraft.integration.compare.results.provenance import commit
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
        measured: what two runs must have in common for their blocks to belong together; so is the code.

    Raises:
        UserError: the file is of another run, in use, no journal, or cannot be read or written.
    """

    def __init__(self, path: Path, kind: type[Block], measured: Mapping[str, Any]) -> None:
        self.finished: dict[tuple[Any, int], Block] = {}
        self._blocks: TypeAdapter[Block] = TypeAdapter(kind)
        self._path = path
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise UserError(f"--journal: {str(path)!r}: {error.strerror}") from None
        try:
            self._take_over({"code": f"{version('foredraft')} {commit()}", **measured})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another run have the file."""
        self._file.close()

    def add(self, block: Block) -> None:
        """Keep a block; one that is there already is not written again."""
        if (block.cell, block.number) in self.finished:
            return
        self.finished[block.cell, block.number] = block
        self._file.write(self._blocks.dump_json(block) + b"\n")
        self._file.flush()

    def _take_over(self, measured: Mapping[str, Any]) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"--journal: {str(self._path)!r} is in use by another run") from None
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
        cut_off = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        first = json.dumps({"measured": measured}).encode() + b"\n"
        if lines:
            self._read(lines, measured)
        elif not first.startswith(cut_off):
            raise self._no_journal()
        # Else the line that was cut off would become the beginning of the next one.
        self._file.truncate(sum(map(len, lines)))
        if not lines:
            self._file.write(first)
            self._file.flush()

    def _no_journal(self) -> UserError:
        return UserError(f"--journal: {str(self._path)!r} is no journal of a comparison")

    def _read(self, lines: Sequence[bytes], measured: Mapping[str, Any]) -> None:
        try:
            there = json.loads(lines[0])["measured"]
            if not isinstance(there, dict):
                raise TypeError("measured is no object")
            blocks = [self._blocks.validate_json(line) for line in lines[1:]]
        except (ValueError, KeyError, TypeError, ValidationError):
            raise self._no_journal() from None
        changed = [name for name in measured if there.get(name) != measured[name]]
        if changed:
            raise UserError(
                f"--journal: {str(self._path)!r} belongs to another comparison ({', '.join(changed)} "
                "differ); give the same options, or another file"
            )
        self.finished = {(block.cell, block.number): block for block in blocks}


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
    finally:
        if journal:
            journal.close()
    return blocks, False
