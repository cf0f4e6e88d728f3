"""The servers of a comparison: ``--endpoint NAME=URL``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from foredraft.integration.compare.online.server_text import printable
from foredraft.integration.errors import UserError

FORM = "NAME=URL, such as plain=http://localhost:8000"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Endpoint:
    """One server.

    Attributes:
        url: without a trailing slash and without ``/v1``.
        model: what to ask for; ``None`` = the first that it lists.
        api_key: sent with each request, shown nowhere.
    """

    name: str
    url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)

    def shown(self, text: str) -> str:
        """A text of the server, fit for a terminal, and without the key, should it repeat it."""
        text = printable(text)
        return text.replace(self.api_key, "***") if self.api_key else text


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


def with_models(endpoints: Sequence[Endpoint], texts: Sequence[str]) -> list[Endpoint]:
    """The servers with the models of ``--model-name``.

    Raises:
        UserError: several for one server.
    """
    models = _per_server("--model-name", texts, [one.name for one in endpoints])
    return [replace(one, model=models.get(one.name)) for one in endpoints]


def with_keys(
    endpoints: Sequence[Endpoint], texts: Sequence[str], variables: Mapping[str, str]
) -> list[Endpoint]:
    """The servers with the keys of ``--api-key-env``, else that of ``DEFAULT_KEY_VARIABLE``.

    Args:
        variables: of the environment.

    Raises:
        UserError: several for one server, a variable that is not set or cannot be a header.
    """
    chosen = _per_server("--api-key-env", texts, [one.name for one in endpoints])
    found = []
    for endpoint in endpoints:
        name = chosen.get(endpoint.name, DEFAULT_KEY_VARIABLE)
        key = variables.get(name, "").strip()
        if not key and endpoint.name in chosen:
            raise UserError(f"--api-key-env: the environment variable {name!r} is not set")
        if not key.isascii() or not key.isprintable():
            raise UserError(
                f"--api-key-env: what {name!r} holds is no key: it has letters no header may have"
            )
        found.append(replace(endpoint, api_key=key or None))
    return found


def _per_server(option: str, texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """ "VALUE" for all servers, "SERVER=VALUE" for one, which goes before."""
    for_all: list[str] = []
    own: dict[str, str] = {}
    for text in texts:
        server, equals, value = text.partition("=")
        if not equals or server not in names:
            for_all.append(text)
        elif server in own or not value:
            raise UserError(f"{option}: needs one value for {server!r}")
        else:
            own[server] = value
    if len(for_all) > 1 or "" in for_all:
        raise UserError(
            f"{option}: needs one value for all servers, or SERVER=VALUE for each (got {for_all})"
        )
    return dict.fromkeys(names, for_all[0]) | own if for_all else own


def _parse(text: str) -> Endpoint:
    form = re.fullmatch(r"([A-Za-z0-9_][\w.-]*)=(\S+)", text.strip())
    if form is None:
        raise UserError(f"--endpoint: needs {FORM} (got {text!r})")
    name, url = form.groups()
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        # As a connection would: an empty part, or one of more than 63 letters, is no part of a host name.
        (parts.hostname or "").encode("idna")
    except ValueError:
        has_host = False
    if not has_host or parts.scheme not in ("http", "https"):
        raise UserError(f"--endpoint {name}: needs an http or https address with a valid host (got {url!r})")
    if not parts.path.isascii():
        raise UserError(f"--endpoint {name}: needs a path of ASCII letters, others as %XX (got {url!r})")
    if parts.username is not None or parts.query or parts.fragment:
        # Not shown: it may be a secret.
        raise UserError(
            f"--endpoint {name}: the address must end with its path and hold no user name; "
            "a key goes into --api-key-env"
        )
    return Endpoint(name, url.rstrip("/").removesuffix("/v1"))
