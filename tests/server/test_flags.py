"""What the flags of the embedded server refuse, before a model is loaded."""

from __future__ import annotations

import pytest
from vllm_server import free_port

from foredraft.integration.errors import UserError
from foredraft.integration.server.flags import parse_flags
from foredraft.integration.server.run import listen


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--port", "99999"),
        ("--port", "0"),
        ("--max-body-mb", "nan"),
        ("--drain-timeout", "inf"),
        ("--drain-timeout", "-1"),
    ],
)
def test_a_number_that_cannot_be_is_named(flag: str, value: str) -> None:
    with pytest.raises(UserError, match=flag) as refused:
        parse_flags([f"{flag}={value}"], ())
    assert value in str(refused.value)


def test_a_port_that_is_taken_is_known_at_once() -> None:
    port = free_port()
    with listen("127.0.0.1", port), pytest.raises(UserError, match=f"--port {port}: cannot listen"):
        listen("127.0.0.1", port)
