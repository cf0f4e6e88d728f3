"""Keeping transformers from talking while it reads a model."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers import modeling_gguf_pytorch_utils
from transformers.utils import logging as transformers_logging


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the bars and warnings of transformers off the screen; errors still raise."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    gguf_bar = modeling_gguf_pytorch_utils.tqdm  # not under transformers' switch for bars
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    modeling_gguf_pytorch_utils.tqdm = lambda tensors, **_: tensors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        modeling_gguf_pytorch_utils.tqdm = gguf_bar
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
