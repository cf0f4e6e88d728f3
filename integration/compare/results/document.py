"""The result for programs: rows, and what is needed to judge and repeat them, written in one piece."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from foredraft.integration.compare.results.rows import ResultRow
from foredraft.integration.embedded.build import Target

PACKAGES = ("torch", "transformers", "foredraft")


def result_document(
    rows: Sequence[ResultRow], target: Target, seed: int, started_at: datetime, *, interrupted: bool
) -> dict[str, Any]:
    """The JSON document.

    Args:
        interrupted: whether cells or blocks are missing because the user ended the run.
    """
    return {
        "results": [row.as_json() for row in rows],
        "environment": environment(target),
        "command": shlex.join(["foredraft", *sys.argv[1:]]),
        "seed": seed,
        "started_at": started_at.isoformat(timespec="seconds"),
        "interrupted": interrupted,
    }


def environment(target: Target) -> dict[str, Any]:
    """Versions, hardware, and how the target ran."""
    on_gpu = target.device.type == "cuda"
    return {
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
        "cpu": _cpu_name(),
        "gpu": torch.cuda.get_device_name(target.device) if on_gpu else None,
        "num_threads": torch.get_num_threads(),
        "model": target.name,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
    }


def run_label(target: Target) -> str:
    """What ran on what, in one line."""
    ran = environment(target)
    hardware = ran["gpu"] or f"{ran['cpu']}, {ran['num_threads']} threads"
    return f"{ran['model']}, {ran['dtype']}, {hardware}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []  # not Linux
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write all of it or nothing: a file that was there before is replaced only by a whole one.

    What is no ordinary file (a pipe, ``/dev/stdout``) is written to, never replaced.
    """
    if path.exists() and not path.is_file():
        path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        return
    path = path.resolve()  # through a link, to the file it stands for
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=2, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
