"""``foredraft traffic``: requests from a server's log, for ``foredraft compare --traffic``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from foredraft.integration.compare.results.writing import check_writable, write_text
from foredraft.integration.errors import UserError
from foredraft.integration.traffic.convert import Converted, convert
from foredraft.integration.traffic.records import record_line


def traffic(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The log of a vLLM server, or JSONL.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the requests go, as JSONL.")],
    lengths_only: Annotated[
        bool, typer.Option("--lengths-only", help="Keep numbers of tokens alone, nothing of any text.")
    ] = False,
) -> None:
    """Take the requests from a server's log, with their arrivals, to replay them.

    Read are the lines that vLLM writes with --enable-log-requests (the
    prompts only at VLLM_LOGGING_LEVEL=DEBUG), and JSONL records in the form
    of OpenAI's requests. Lines that are neither are counted.
    """
    if out.resolve() == log.resolve():
        raise UserError(f"--out: {str(out)!r} is the log itself, which must not be overwritten")
    check_writable(out, "--out")
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            found = convert(lines, str(log), lengths_only=lengths_only)
    except OSError as error:
        raise UserError(f"{str(log)!r} cannot be read: {error.strerror}") from None
    write_text(out, "".join(record_line(record) for record in found.records))
    for line in _summary(found, out):
        print(line, file=sys.stderr)


def _summary(found: Converted, out: Path) -> list[str]:
    lines = [f"{len(found.records)} requests written to {out}"]
    lines += [f"left out: {count} lines: {reason}" for reason, count in found.left_out.most_common()]
    if found.num_estimated:
        lines.append(f"{found.num_estimated} prompts have no count of tokens; estimated from their letters")
    if found.lost_arrivals:
        lines.append(
            f"no arrivals: only {found.lost_arrivals} of {len(found.records)} requests tell their time"
        )
    return lines
