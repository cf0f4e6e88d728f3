"""The way to a draft server through Ray: plain calls of a named actor."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from foredraft.proposers.remote_channel import ChannelError
from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, ServerCard, TargetCard
from foredraft.scheduler.cluster.ray_import import import_ray

HELLO_S = 10.0


class RayAnswer:
    """See ``remote_channel.Pending``, of a ``DraftAnswer``."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def result(self, timeout_s: float) -> DraftAnswer:
        """See ``Pending``."""
        try:
            answer: DraftAnswer = self._ray.get(self._reference, timeout=timeout_s)
        except self._ray.exceptions.GetTimeoutError:
            raise TimeoutError from None
        except self._ray.exceptions.RayError as error:
            raise ChannelError(_first_line(error)) from None
        return answer


class HelloAnswer:
    """See ``remote_channel.Pending``, of a ``ServerCard``."""

    def __init__(self, future: Future[ServerCard]) -> None:
        self._future = future

    def result(self, timeout_s: float) -> ServerCard:
        """See ``Pending``."""
        try:
            return self._future.result(timeout_s)
        except FutureTimeoutError:
            raise TimeoutError from None
        except Exception as error:
            raise ChannelError(_first_line(error)) from None


class RayChannel:
    """See ``proposers.remote_channel.DraftChannel``. Ray has to be connected.

    Args:
        name, namespace: of the actor. Who bears the name is looked up with each ``hello``, in a thread of its
            own: with Ray's head away that may take long.
    """

    def __init__(self, name: str, namespace: str | None = None) -> None:
        self._ray = import_ray()
        self._name, self._namespace = name, namespace
        self._actor: Any = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="draft-server-hello")

    def hello(self, target: TargetCard) -> HelloAnswer:
        """See ``DraftChannel``."""
        return HelloAnswer(self._threads.submit(self._hello, target))

    def draft(self, request: DraftRequest) -> RayAnswer:
        """See ``DraftChannel``."""
        try:
            return RayAnswer(self._ray, self._actor.draft.remote(request))
        except self._ray.exceptions.RayError as error:
            raise ChannelError(_first_line(error)) from None

    def _hello(self, target: TargetCard) -> ServerCard:
        try:
            actor = self._ray.get_actor(self._name, namespace=self._namespace)
        except ValueError:
            raise ChannelError(f"no actor {self._name!r} in namespace {self._namespace!r}") from None
        card: ServerCard = self._ray.get(actor.hello.remote(target), timeout=HELLO_S)
        self._actor = actor
        return card


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[-1] if text.startswith("\x1b") else text.splitlines()[0]
