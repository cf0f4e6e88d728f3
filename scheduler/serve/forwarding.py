"""A request through its variant and back, counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import Response

from foredraft.scheduler.http.asgi import Receive
from foredraft.scheduler.http.disconnect import ClientGoneError, unless_gone
from foredraft.scheduler.http.errors import DONE, ApiError
from foredraft.scheduler.http.streams import ClosingStream
from foredraft.scheduler.serve.ingress_metrics import IngressMetrics
from foredraft.scheduler.serve.messages import HttpCall, ReplyStart
from foredraft.scheduler.serve.options import ServeOptions
from foredraft.scheduler.serve.passage import Passage
from foredraft.scheduler.serve.relay import OpenReply, open_reply
from foredraft.scheduler.serve.standing import Standings

VARIANT_HEADER = "x-foredraft-variant"
"""In a request: the variant that is to serve it. In an answer: the one that did."""

CLIENT_GONE = 499
BAD_REQUEST = 400
HIDDEN = (b"content-length", b"transfer-encoding", b"connection")


class Forwarding:
    """Sends requests to variants."""

    def __init__(
        self,
        handles: Mapping[str, Any],
        options: ServeOptions,
        standings: Standings,
        metrics: IngressMetrics,
    ) -> None:
        self._handles = handles
        self._options = options
        self._standings = standings
        self._metrics = metrics

    async def answer(self, variant: str, call: HttpCall, receive: Receive) -> Response:
        """What the variant answers; an error of our own where it cannot."""
        passage = Passage(variant, call.generates, self._standings, self._metrics)
        try:
            reply = await unless_gone(receive, self._open(variant, call))
        except ClientGoneError:
            passage.end(CLIENT_GONE, None)
            return Response(status_code=CLIENT_GONE)
        except ApiError as error:
            passage.end_with(error)
            return _error_answer(variant, error)
        except BaseException:
            passage.end(CLIENT_GONE, None)
            raise
        if _is_stream(reply.start):
            return Relayed(variant, reply, passage).response()
        return await self._whole(variant, reply, passage, receive)

    async def _open(self, variant: str, call: HttpCall) -> OpenReply:
        options = self._options
        return await open_reply(
            variant, self._handles[variant], call, options.accept_timeout_s, options.silence_timeout_s
        )

    async def _whole(self, variant: str, reply: OpenReply, passage: Passage, receive: Receive) -> Response:
        """An answer that is sent when all of it is there, so that a failure half-way is one answer too."""
        status = CLIENT_GONE
        error: str | None = None
        try:
            body = await unless_gone(receive, _body(reply, passage))
            status = reply.start.status
            error = f"status {status}: {passage.watch.error}" if status >= 500 else None
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except ApiError as failure:
            status, error = failure.status, failure.message
            return _error_answer(variant, failure)
        finally:
            reply.close()
            passage.end(status, error)
        answer = Response(body, status)
        answer.raw_headers += _headers(variant, reply)
        return answer


class Relayed:
    """An answer passed on as it comes; one that breaks off ends with an error event."""

    def __init__(self, variant: str, reply: OpenReply, passage: Passage) -> None:
        self._variant = variant
        self._reply = reply
        self._passage = passage
        self._status = CLIENT_GONE
        self._error: str | None = None

    def response(self) -> Response:
        """What is sent."""
        response = ClosingStream(self._pieces(), self._end, self._reply.start.status)
        response.raw_headers = _headers(self._variant, self._reply)
        return response

    def _end(self) -> None:
        self._reply.close()
        self._passage.end(self._status, self._error)

    async def _pieces(self) -> AsyncIterator[bytes]:
        passage = self._passage
        try:
            async for piece in self._reply.pieces():
                passage.note_piece()
                passage.watch.stream_piece(piece)
                yield piece
        except ApiError as failure:
            self._status, self._error = failure.status, failure.message
            yield failure.event() + DONE
        else:
            if passage.watch.is_clients_fault:
                self._status = BAD_REQUEST
            else:
                self._status, self._error = self._reply.start.status, passage.watch.error


async def _body(reply: OpenReply, passage: Passage) -> bytes:
    parts = []
    async for piece in reply.pieces():
        passage.note_piece()
        parts.append(piece)
    body = b"".join(parts)
    passage.watch.document(body)
    return body


def _is_stream(start: ReplyStart) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in start.headers
    )


def _headers(variant: str, reply: OpenReply) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in reply.start.headers if name.lower() not in HIDDEN]
    return [*kept, (VARIANT_HEADER.encode(), variant.encode())]


def _error_answer(variant: str, error: ApiError) -> Response:
    headers = error.headers | {VARIANT_HEADER: variant}
    return Response(error.body(), error.status, headers, "application/json")
