"""The clusters that ``status`` and ``down`` look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from foredraft.integration.deploy.records import Record, read_records

ADDRESS_HELP = (
    "The Ray cluster: auto, host:port or ray://host:port. Default: where this user's deployments were "
    "started, else auto."
)
AddressOption = Annotated[str | None, typer.Option("--address", metavar="ADDRESS", help=ADDRESS_HELP)]

CONNECT_S = 5.0


def addresses(name: str | None, given: str | None) -> list[str]:
    """Where to look for a deployment, or for all of them."""
    if given is not None:
        return [given]
    found = [record.address for record in records_of(name)]
    return list(dict.fromkeys(found)) or ["auto"]


def records_of(name: str | None, address: str | None = None) -> Sequence[Record]:
    """What is remembered of a deployment, or of all."""
    return [
        record
        for record in read_records()
        if name in (None, record.name) and address in (None, record.address)
    ]
