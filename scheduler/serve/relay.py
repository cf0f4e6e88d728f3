"""A request on its way through a variant: sent to one of its replicas, answered piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException

from foredraft.scheduler.http.errors import ApiError
from foredraft.scheduler.serve.messages import HttpCall, ReplyStart

RETRY_SOON = {"Retry-After": "1"}


class OpenReply:
    """An answer that has begun; close it, read to its end or not.

    Attributes:
        start: its status and headers.
        replica: the name of the one that serves it.
    """

    def __init__(self, variant: str, stream: Any, silence_timeout_s: float) -> None:
        self._variant = variant
        self._stream = stream
        self._silence_timeout_s = silence_timeout_s
        self.replica = ""
        self.start = ReplyStart(500, ())

    async def open(self, accept_timeout_s: float) -> None:
        """Wait until a replica has the request, then until its answer begins.

        Raises:
            ApiError: no replica takes it in time, or the one that did fails.
        """
        self.replica = (await self._next(accept_timeout_s, self._not_accepted(accept_timeout_s))).replica
        self.start = await self._next(self._silence_timeout_s, self._silent())

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body.

        Raises:
            ApiError: the replica failed on the way.
        """
        try:
            while True:
                yield await self._next(self._silence_timeout_s, self._silent())
        except StopAsyncIteration:
            return

    def close(self) -> None:
        """Ends the request in the replica, if it has not ended."""
        self._stream.cancel()

    async def _next(self, timeout_s: float, late: ApiError) -> Any:
        try:
            return await asyncio.wait_for(anext(self._stream), timeout_s)
        except TimeoutError:
            raise late from None
        except BackPressureError:
            text = f"variant {self._variant} has too many requests waiting"
            raise ApiError(429, text, code="queue_full", headers=RETRY_SOON) from None
        except RayActorError:
            text = f"the replica of variant {self._variant} that served this request died; ask again"
            raise ApiError(502, text, code="replica_died", headers=RETRY_SOON) from None
        except (RayError, RayServeException) as error:
            first = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            text = f"the replica of variant {self._variant} failed: {first[0]}"
            raise ApiError(500, text, code="replica_failed") from None

    def _not_accepted(self, timeout_s: float) -> ApiError:
        text = f"no replica of variant {self._variant} took the request within {timeout_s:g} s"
        return ApiError(503, text, code="variant_unavailable", headers=RETRY_SOON)

    def _silent(self) -> ApiError:
        text = f"the replica of variant {self._variant} said nothing for {self._silence_timeout_s:g} s"
        return ApiError(504, text, code="replica_silent")


async def open_reply(
    variant: str, handle: Any, call: HttpCall, accept_timeout_s: float, silence_timeout_s: float
) -> OpenReply:
    """Send a request to a variant and wait for its answer to begin.

    Raises:
        ApiError: it does not.
    """
    stream = handle.options(stream=True).handle.remote(call)
    reply = OpenReply(variant, stream, silence_timeout_s)
    try:
        await reply.open(accept_timeout_s)
    except BaseException:
        reply.close()
        raise
    return reply
