"""Named patches of vLLM: each checks what it replaces, and can be listed and taken back."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.integration.vllm.log import logger

SUPPORTED_VERSIONS = ("0.32.0",)


class HookError(RuntimeError):
    """A hook does not fit the vLLM that is installed. One sentence."""


@dataclass(frozen=True)
class Hook:
    """One attribute of vLLM and what takes its place.

    Attributes:
        target: "module:Class.method".
        parameters: names the original must have, in order; a hook written for others would break silently.
        make: the original -> its replacement.
    """

    name: str
    purpose: str
    target: str
    parameters: tuple[str, ...]
    make: Callable[[Callable[..., Any]], Callable[..., Any]]

    def owner(self) -> tuple[Any, str]:
        """The class that has the attribute, and the attribute's name.

        Raises:
            HookError: vLLM has no such class or attribute.
        """
        module_name, _, path = self.target.partition(":")
        class_name, _, attribute = path.partition(".")
        try:
            owner = getattr(importlib.import_module(module_name), class_name)
        except (ImportError, AttributeError) as error:
            raise HookError(
                f"hook {self.name}: {self.target} is not in vLLM {vllm_version()}: {error}"
            ) from None
        if attribute not in vars(owner):
            raise HookError(f"hook {self.name}: vLLM {vllm_version()} has no {self.target}")
        return owner, attribute


@dataclass(frozen=True)
class HookState:
    """What ``HookSet.states`` tells of one hook; ``problem`` says why it cannot be applied."""

    hook: Hook
    applied: bool
    problem: str | None


class HookSet:
    """Hooks that are applied together or not at all."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        names = [hook.name for hook in hooks]
        assert len(set(names)) == len(names), f"two hooks have the same name: {names}"
        self.hooks = tuple(hooks)
        self._originals: dict[str, Callable[..., Any]] = {}

    @property
    def applied(self) -> bool:
        """Whether the hooks are in place."""
        return bool(self._originals)

    def apply(self) -> None:
        """Put every hook in place; nothing is changed if one of them does not fit. May be called again.

        Raises:
            HookError: unknown vLLM version, or an attribute that is not the one the hook was written for.
        """
        if self.applied:
            return
        check_version()
        for hook in self.hooks:
            check_hook(hook)
        for hook in self.hooks:
            owner, attribute = hook.owner()
            original = vars(owner)[attribute]
            setattr(owner, attribute, hook.make(original))
            self._originals[hook.name] = original
            logger.info("hook %s: %s (%s)", hook.name, hook.target, hook.purpose)

    def remove(self) -> None:
        """Give vLLM its own attributes back."""
        for hook in self.hooks:
            if hook.name in self._originals:
                owner, attribute = hook.owner()
                setattr(owner, attribute, self._originals.pop(hook.name))

    def states(self) -> list[HookState]:
        """Every hook, whether it is in place, and if not, whether it could be."""
        return [HookState(hook, hook.name in self._originals, self._problem(hook)) for hook in self.hooks]

    def _problem(self, hook: Hook) -> str | None:
        if hook.name in self._originals:
            return None
        try:
            check_hook(hook)
        except HookError as error:
            return str(error)
        return None


def vllm_version() -> str:
    """The version of the vLLM that is imported, without a local suffix such as "+cpu"."""
    import vllm

    return str(vllm.__version__).partition("+")[0]


def check_version() -> None:
    """Raises ``HookError`` where the hooks were not written for the vLLM that is installed."""
    if vllm_version() not in SUPPORTED_VERSIONS:
        supported = ", ".join(SUPPORTED_VERSIONS)
        raise HookError(f"foredraft works with vLLM {supported}, but {vllm_version()} is installed")


def check_hook(hook: Hook) -> None:
    """Raises ``HookError`` where the attribute is not the one that the hook was written for."""
    owner, attribute = hook.owner()
    original = vars(owner)[attribute]
    # Where the code was written: functools.wraps copies __module__, so that would tell nothing.
    written_in = str(getattr(original, "__globals__", {}).get("__name__", type(original).__module__))
    if not written_in.startswith("vllm."):
        raise HookError(f"hook {hook.name}: {hook.target} was already replaced by {written_in}")
    found = tuple(inspect.signature(original).parameters)
    if found != hook.parameters:
        raise HookError(
            f"hook {hook.name}: {hook.target} takes ({', '.join(found)}) in vLLM {vllm_version()}, "
            f"expected ({', '.join(hook.parameters)})"
        )
