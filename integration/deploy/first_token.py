"""The first real request of a deployment: how long until a token came."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

from foredraft.integration.errors import UserError
from foredraft.scheduler.cluster.nodes import HEAD_RESOURCE
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.serve.forwarding import VARIANT_HEADER

RETRY_S = 0.2
NOT_YET = (404, 502, 503)
"""What Serve answers while it does not know the application yet."""


def ask_first_token(url: str, variant: str, api_key: str | None, deadline_s: float) -> float:
    """Seconds from the request to its token, asked on the cluster's head: where the address certainly is.

    Raises:
        UserError: none came within the deadline; says what the server answered.
    """
    ray = import_ray()
    ask = ray.remote(num_cpus=0, resources={HEAD_RESOURCE: 0.001}, max_retries=0)(_ask)
    try:
        seconds, fault = ray.get(ask.remote(url, variant, api_key, deadline_s), timeout=deadline_s + 30.0)
    except ray.exceptions.RayError as error:
        raise UserError(f"no token from variant {variant}: {type(error).__name__}") from None
    if fault is not None:
        raise UserError(f"no token from variant {variant} within {deadline_s:g} s: {fault}")
    return float(seconds)


def _ask(url: str, variant: str, api_key: str | None, deadline_s: float) -> tuple[float, str | None]:
    ends = time.monotonic() + deadline_s
    while True:
        started = time.monotonic()
        try:
            _one_token(url, variant, api_key, max(1.0, ends - started))
            return time.monotonic() - started, None
        except urllib.error.HTTPError as error:
            fault = f"HTTP {error.code}: {_message(error)}"
            final = error.code not in NOT_YET
        except (OSError, ValueError) as error:
            fault, final = str(error), False
        if final or time.monotonic() > ends:
            return 0.0, fault
        time.sleep(RETRY_S)


def _one_token(url: str, variant: str, api_key: str | None, timeout_s: float) -> None:
    """A token id needs no tokenizer, and every vocabulary has a token 0."""
    headers = {"Content-Type": "application/json", VARIANT_HEADER: variant}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    asked: dict[str, Any] = {"prompt": [0], "max_tokens": 1, "temperature": 0}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(asked).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        if json.load(answer)["usage"]["completion_tokens"] != 1:
            raise ValueError("the answer has no token")


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
