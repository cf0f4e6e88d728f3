"""Where models come from: the built-in one, folders, GGUF files and the Hugging Face hub.

The names below are loaded on first use, so that commands which load no model stay quick.
"""

from typing import TYPE_CHECKING, Any

from foredraft.integration.models.collector import collector_paused

if TYPE_CHECKING:
    from foredraft.integration.models.loading import LoadedModel, eos_token_ids, load_model

__all__ = ["LoadedModel", "eos_token_ids", "load_model"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        with collector_paused():
            from foredraft.integration.models import loading

        return getattr(loading, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
