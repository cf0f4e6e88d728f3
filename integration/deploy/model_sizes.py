"""How large a model is: from its name, from numbers, or from the files it comes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from foredraft.integration.config_text import parse_json
from foredraft.integration.errors import UserError
from foredraft.integration.models.draft_file import DRAFT_FILE, is_draft_file
from foredraft.integration.paths import user_path
from foredraft.scheduler.hardware_model.language_models import MODELS, ModelSize

KV_VALUE_BYTES = 2
"""The cost model's: keys and values of 16 bit."""

NUMBERS = ("weights", "kv", "layers")
MORE_NUMBERS = ("hidden",)
BYTES_OF = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class SizedModel:
    """What a plan needs to know of a model."""

    size: ModelSize
    weights_bytes: int
    kv_bytes_per_token: int


def sized_model(option: str, text: str, weight_bytes: float) -> SizedModel:
    """The model that ``text`` means: a name of the table, ``weights=BYTES,kv=BYTES,layers=N[,hidden=N]``, a
    folder in transformers' layout, or what ``foredraft train draft`` wrote.

    Args:
        option: for messages.
        weight_bytes: per weight, of a model named or given in numbers.

    Raises:
        UserError: it is none of these, or its files do not say.
    """
    if text in MODELS:
        size = MODELS[text]
        return SizedModel(size, int(size.num_params * weight_bytes), size.kv_values * KV_VALUE_BYTES)
    if "=" in text:
        return _from_numbers(option, text, weight_bytes)
    path = user_path(text, option)
    if path.exists():
        return _from_files(option, path)
    raise UserError(
        f"{option}: should be one of {', '.join(MODELS)}, a folder with a model, or "
        f"weights=BYTES,kv=BYTES,layers=N (got {text!r})"
    )


def _from_numbers(option: str, text: str, weight_bytes: float) -> SizedModel:
    pairs = [entry.partition("=") for entry in text.split(",")]
    numbers = {name.strip(): _number(option, entry, value) for name, entry, value in pairs}
    unknown = [name for name in numbers if name not in NUMBERS + MORE_NUMBERS]
    missing = [name for name in NUMBERS if name not in numbers]
    if unknown or missing or len(numbers) < len(pairs):
        wanted = f"{', '.join(NUMBERS)} and perhaps {', '.join(MORE_NUMBERS)}"
        raise UserError(f"{option}: needs each of {wanted} once (got {text!r})")
    params, layers = numbers["weights"] / weight_bytes, int(numbers["layers"])
    # A layer of the usual shape has 12 H^2 weights.
    hidden = int(numbers.get("hidden", max(1, round(sqrt(params / 12 / layers)))))
    kv_dim = max(1, round(numbers["kv"] / (2 * layers * KV_VALUE_BYTES)))
    size = ModelSize(params, layers, hidden, hidden, kv_dim, 1, 0, True, "given")
    return SizedModel(size, int(numbers["weights"]), int(numbers["kv"]))


def _number(option: str, equals: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not equals or not 1 <= value < 1e18:
        raise UserError(f"{option}: needs NAME=NUMBER with numbers of at least 1 (got {text!r})")
    return value


def _from_files(option: str, path: Path) -> SizedModel:
    if is_draft_file(path):
        file = path / DRAFT_FILE if path.is_dir() else path
        return _sized(option, file, _header_config(option, file), file.stat().st_size)
    weights = sum(file.stat().st_size for file in path.glob("*.safetensors")) if path.is_dir() else 0
    config = path / "config.json"
    if not weights or not config.is_file():
        raise UserError(
            f"{option}: {path} is no folder with config.json and *.safetensors; give its sizes as "
            "weights=BYTES,kv=BYTES,layers=N"
        )
    return _sized(option, config, parse_json(config.read_bytes(), f"{option}: {config}"), weights)


def _header_config(option: str, file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as opened:
            text = (opened.metadata() or {}).get("config", "")
    except (OSError, SafetensorError) as error:
        raise UserError(f"{option}: {file} cannot be read: {error}") from None
    return parse_json(text, f"{option}: {file}")


def _sized(option: str, file: Path, config: Mapping[str, Any], weights_bytes: int) -> SizedModel:
    try:
        layers, hidden = int(config["num_hidden_layers"]), int(config["hidden_size"])
        heads = int(config["num_attention_heads"])
        kv_heads = int(config.get("num_key_value_heads") or heads)
        head_dim = int(config.get("head_dim") or hidden // heads)
        vocab = int(config.get("vocab_size", 0))
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{option}: {file} does not say how large the model is ({error})") from None
    params = weights_bytes / BYTES_OF.get(dtype, 2)
    tied = bool(config.get("tie_word_embeddings", False)) or vocab * hidden >= params
    size = ModelSize(params, layers, hidden, heads, kv_heads, head_dim, vocab, tied, str(file))
    return SizedModel(size, weights_bytes, size.kv_values * KV_VALUE_BYTES)
