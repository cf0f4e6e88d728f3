"""The settings of a run, kept in its folder; a rerun is held to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foredraft.integration.errors import UserError
from foredraft.integration.train.files import write_atomic
from foredraft.integration.train.settings import TrainSettings, as_flag

SETTINGS_FILE = "settings.json"
DIGESTS = "data_sha256"
KIND = "kind"
COMPARED_BY_CONTENT = ("model", "target_fingerprint", "data", DIGESTS)
DECIDE_THE_TEXT = ("write_tokens", "max_response_tokens", "seed")


def keep_settings(
    folder: Path, settings: TrainSettings, target: Mapping[str, str], data_digests: Sequence[str] = ()
) -> None:
    """Write the settings of a new run; hold a rerun to those of the first one.

    Model and data may be named differently the next time, as long as they hold the same. ``train_tokens`` may
    grow: the training goes on from its end, at the rate that the longer schedule has there.

    Args:
        target: what identifies the target: its ``model`` name, ``dtype`` and ``target_fingerprint``.
        data_digests: SHA-256 of each data file.

    Raises:
        UserError: the folder belongs to a run with other settings, or cannot be written.
    """
    path = folder / SETTINGS_FILE
    now = _as_kept(settings, target, data_digests)
    if not path.exists():
        write_atomic(path, (json.dumps(now, indent=2) + "\n").encode())
        return
    before = _read(path)
    _check_kind(folder, before, settings)
    _check_model(folder, before, now)
    _check_data(folder, before, now)
    grown = now["train_tokens"] > before.get("train_tokens", now["train_tokens"])
    for name in dict.fromkeys([*now, *before]):
        if name in COMPARED_BY_CONTENT or (name == "train_tokens" and grown):
            continue
        if now.get(name) != before.get(name):
            raise _begun_with(folder, name, before, now)
    if grown:
        write_atomic(
            path, (json.dumps(before | {"train_tokens": now["train_tokens"]}, indent=2) + "\n").encode()
        )


def check_shared_data(
    others: Iterable[Path], settings: TrainSettings, target: Mapping[str, str], data_digests: Sequence[str]
) -> None:
    """Hold a run to the data of those that share its samples; arguments as for ``keep_settings``.

    Args:
        others: folders, in which a run may have begun.

    Raises:
        UserError: one of them reads other data, or is of another kind.
    """
    now = _as_kept(settings, target, data_digests)
    for other in others:
        if not (other / SETTINGS_FILE).exists():
            continue
        before = _read(other / SETTINGS_FILE)
        _check_kind(other, before, settings)
        _check_model(other, before, now)
        _check_data(other, before, now)
        for name in DECIDE_THE_TEXT:
            if now[name] != before.get(name):
                raise _begun_with(other, name, before, now)


def _as_kept(
    settings: TrainSettings, target: Mapping[str, str], data_digests: Sequence[str]
) -> dict[str, Any]:
    return {KIND: settings.kind, **settings.model_dump(mode="json"), **target, DIGESTS: list(data_digests)}


def _check_kind(folder: Path, before: dict[str, Any], settings: TrainSettings) -> None:
    if before[KIND] != settings.kind:
        raise UserError(
            f"--out: {folder} belongs to `foredraft train {before[KIND]}`; name another folder, into which "
            "written.jsonl, given.jsonl and features/ may be copied"
        )


def _check_model(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    if before["target_fingerprint"] == now["target_fingerprint"]:
        return
    if not _same_path(before["model"], now["model"]):
        raise _begun_with(folder, "model", before, now)
    raise UserError(
        f"--model: its weights changed since this run began; {now['model']} is no longer what the run in "
        f"{folder} was begun for. Give another --out"
    )


def _check_data(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    if len(before["data"]) != len(now["data"]):
        raise _begun_with(folder, "data", before, now)
    digests = before.get(DIGESTS) or [None] * len(now["data"])  # runs of earlier versions kept none
    for was, name, digest, digest_now in zip(
        before["data"], now["data"], digests, now[DIGESTS], strict=False
    ):
        same_path = _same_path(was, name)
        if digest is not None and same_path and digest != digest_now:
            raise UserError(
                f"--data: {name} changed since the run in {folder} began; restore it, or give another --out"
            )
        if digest != digest_now and not same_path:
            raise _begun_with(folder, "data", before, now)


def _begun_with(folder: Path, name: str, before: dict[str, Any], now: dict[str, Any]) -> UserError:
    return UserError(
        f"{as_flag(name)}: {folder} was begun with {before.get(name)!r}, now it is {now.get(name)!r}; repeat "
        "the first value to resume, or give another --out"
    )


def _same_path(one: str, other: str) -> bool:
    return one == other or Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"--out: {path} cannot be read: {error}") from None
    names = ("model", "target_fingerprint", "data")
    if not isinstance(found, dict) or not all(name in found for name in names):
        raise UserError(f"--out: {path} is not of a training; name another folder")
    return {KIND: "draft"} | found  # runs of earlier versions kept none
