"""What both modes of ``foredraft compare`` have in common around a run: its files, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foredraft.integration.compare.options import CompareOptions
from foredraft.integration.compare.results.writing import check_writable, write_json, write_text
from foredraft.integration.errors import UserError


@dataclass(frozen=True)
class Files:
    """Where results go to and come from; ``None`` = not wanted."""

    json: Path | None = None
    html: Path | None = None
    baseline: Path | None = None
    journal: Path | None = None

    @classmethod
    def of(cls, options: CompareOptions) -> Files:
        """Those of the command line."""
        return cls(options.json_file, options.html_file, options.baseline_file, options.journal_file)

    def check(self) -> None:
        """Try out what will be written.

        Raises:
            UserError: a file that cannot be written, or is asked for twice.
        """
        self._check_distinct()
        for option, path in {"--json": self.json, "--html": self.html, "--journal": self.journal}.items():
            if path is not None:
                check_writable(path, option)

    def _check_distinct(self) -> None:
        """One would overwrite the other; pipes and devices take several."""
        asked = {"--json": self.json, "--html": self.html, "--journal": self.journal}
        taken: dict[Path, str] = {}
        for option, path in (asked | {"--baseline": self.baseline}).items():
            if path is None or (path.exists() and not path.is_file()):
                continue
            other = taken.setdefault(path.resolve(), option)
            if other != option:
                raise UserError(f"{option}: {str(path)!r} is the file of {other} as well; each needs its own")


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        compared: whether anything could be compared.
    """

    interrupted: bool
    regressed: bool
    compared: bool = True


class Written(Protocol):
    """A result document."""

    @property
    def results(self) -> Sequence[Any]: ...

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


def write_results(document: Written, page: Callable[[], str], files: Files) -> None:
    """Write what was asked for; nothing where nothing is complete.

    Args:
        page: makes the report.
    """
    if not document.results:
        return
    if files.json:
        write_json(files.json, document.model_dump(mode="json"))
    if files.html:
        write_text(files.html, page())


def refuse(options: Mapping[str, Any], where: str) -> None:
    """Say of the first option that was given that it means nothing here.

    Raises:
        UserError: one was given.
    """
    for option, value in options.items():
        if value:
            raise UserError(f"{option}: means nothing {where}")
