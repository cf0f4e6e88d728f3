"""Where a result comes from: versions, hardware, commit, command."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from foredraft.integration.embedded.build import Target

PACKAGES = ("torch", "transformers")


def machine() -> dict[str, Any]:
    """What ran the comparison, whatever ran the model."""
    return {"python": platform.python_version(), "foredraft": version("foredraft"), "cpu": _cpu_name()}


def environment(target: Target) -> dict[str, Any]:
    """Versions, hardware, and how the target ran."""
    on_gpu = target.device.type == "cuda"
    return torch_machine(torch.cuda.get_device_name(target.device) if on_gpu else None) | {
        "engine": "embedded",
        "model": target.name,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
    }


def torch_machine(gpu_name: str | None) -> dict[str, Any]:
    """What ran comparison and model, where both run in this process or on this machine."""
    return {
        **machine(),
        **{package: version(package) for package in PACKAGES},
        "gpu": gpu_name,
        "num_threads": torch.get_num_threads(),
    }


def run_label(ran: dict[str, Any]) -> str:
    """What ran on what, in one line.

    Args:
        ran: see ``environment``.
    """
    hardware = ran["gpu"] or f"{ran['cpu']}, {ran['num_threads']} threads"
    return f"{ran['model']}, {ran['dtype']}, {hardware}"


def command_line() -> str:
    """The command as one would type it."""
    return shlex.join(["foredraft", *sys.argv[1:]])


def commit() -> str | None:
    """The commit of the checkout that this file lies in, ``-dirty`` where files have changed.

    ``None`` outside of a checkout of foredraft: an install may lie inside the repository of someone else.
    """
    here = Path(__file__).resolve()
    top = _git(here.parent, "rev-parse", "--show-toplevel")
    if top is None or not here.is_relative_to(Path(top) / "integration"):
        return None
    head = _git(here.parent, "rev-parse", "HEAD")
    changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return f"{head}-dirty" if head and changed else head


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []  # not Linux
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
