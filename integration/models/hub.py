"""Models of the Hugging Face hub, fetched into its own cache."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from foredraft.integration.errors import UserError
from foredraft.integration.models.builtin import BUILTIN_MODEL

# What transformers reads: not the copies in other formats that many repositories also hold.
FILES = ["*.json", "model*.safetensors", "*.model", "*.jinja", "vocab*", "merges.txt"]


def hub_folder(name: str) -> Path:
    """The local folder of a hub model, downloaded unless it is in the cache; offline the cache is used.

    Raises:
        UserError: not a valid hub id, no such model, or not cached while the hub cannot be reached.
    """
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UserError(
            f"model: {name!r} is neither a folder, a file nor a hub id (built in: {BUILTIN_MODEL})"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=FILES))
    except LocalEntryNotFoundError:
        raise UserError(
            f"model: {name!r} is neither a folder nor a file here, not in the Hugging Face cache, "
            f"and the hub cannot be reached (built in: {BUILTIN_MODEL})"
        ) from None
    except RepositoryNotFoundError:
        raise UserError(f"model: the hub has no {name!r} that you may read") from None
    except (HfHubHTTPError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"model: {name!r} cannot be fetched from the hub: {reason}") from error
