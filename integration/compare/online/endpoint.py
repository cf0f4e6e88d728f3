"""The servers of a comparison: ``--endpoint NAME=URL``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from foredraft.integration.errors import UserError

FORM = "NAME=URL, such as plain=http://localhost:8000"


@dataclass(frozen=True)
class Endpoint:
    """One server.

    Attributes:
        url: without a trailing slash and without ``/v1``.
    """

    name: str
    url: str


def parse_endpoints(texts: Sequence[str]) -> list[Endpoint]:
    """The servers in order; the first is the baseline.

    Raises:
        UserError: not of the form, a name twice, or fewer than two.
    """
    endpoints = [_parse(text) for text in texts]
    names = [endpoint.name for endpoint in endpoints]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"--endpoint: the name {twice[0]!r} is given twice")
    if len(endpoints) < 2:
        raise UserError("--endpoint: needs two servers at least; the first is the baseline")
    return endpoints


def _parse(text: str) -> Endpoint:
    form = re.fullmatch(r"([A-Za-z0-9_][\w.-]*)=(\S+)", text.strip())
    if form is None:
        raise UserError(f"--endpoint: needs {FORM} (got {text!r})")
    name, url = form.groups()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"--endpoint {name}: needs an http or https address (got {url!r})")
    return Endpoint(name, url.rstrip("/").removesuffix("/v1"))
