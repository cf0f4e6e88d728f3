"""Read workloads: JSONL, one prompt a line, ``{"id": ..., "category": ..., "turns": ["...", ...]}``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from foredraft.integration.errors import UserError
from foredraft.integration.workloads.json_lines import has_lone_surrogate, numbered_lines, parse_json


@dataclass(frozen=True)
class WorkloadPrompt:
    """One conversation: what the user says in each turn."""

    id: str
    category: str
    turns: tuple[str, ...]


def workload_names() -> list[str]:
    """The built-in workloads, sorted."""
    names = (entry.name for entry in files(__package__).iterdir())
    return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))


def load_workload(
    name_or_path: str | Path, categories: Sequence[str] | None = None, limit: int | None = None
) -> list[WorkloadPrompt]:
    """The prompts of a built-in workload, or of a JSONL file, in order.

    In a file the id may be named ``question_id`` (as in Spec-Bench) or left out (then it is the line
    number), and the category left out (then it is the file's name). Empty lines are skipped.

    Args:
        categories: keep only these; ``None`` = all.
        limit: keep at most this many; ``None`` = all.

    Raises:
        UserError: no such workload, a line that is not a prompt, a category that is not there, a limit
            below 1.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit must be 1 or more, got {limit}")
    prompts = _parse(str(name_or_path), _read(name_or_path), Path(name_or_path).stem)
    if categories is not None:
        prompts = _keep(prompts, categories, str(name_or_path))
    return prompts[:limit]


def _read(name_or_path: str | Path) -> str:
    if name_or_path in workload_names():
        return files(__package__).joinpath(f"{name_or_path}.jsonl").read_text(encoding="utf-8")
    try:
        return Path(name_or_path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        names = ", ".join(workload_names())
        raise UserError(f"workload {str(name_or_path)!r}: no such file; built-in ones are {names}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"workload {str(name_or_path)!r} cannot be read: {error}") from None


def _parse(source: str, text: str, default_category: str) -> list[WorkloadPrompt]:
    lines = numbered_lines(text)
    if not lines:
        raise UserError(f"{source}: empty, no prompts in it")
    prompts = []
    for number, line in lines:
        try:
            prompts.append(_prompt(parse_json(line), number, default_category))
        except UserError as error:
            raise UserError(f"{source}, line {number}: {error}") from None
    return prompts


def _prompt(row: Any, number: int, default_category: str) -> WorkloadPrompt:
    if not isinstance(row, dict):
        raise UserError(f"must be a JSON object with turns, got {type(row).__name__}")
    if "turns" not in row:
        raise UserError(f"no turns; the fields are {', '.join(row) or 'none'}")
    turns = row["turns"]
    if not isinstance(turns, list) or not all(isinstance(turn, str) for turn in turns):
        raise UserError(f"turns must be a list of texts, got {turns!r:.80}")
    if not turns or not all(turn.strip() for turn in turns):
        raise UserError(f"turns must hold at least one text and no empty one, got {turns!r:.80}")
    prompt_id = str(row.get("id", row.get("question_id", number)))
    category = str(row.get("category", default_category))
    for text in (prompt_id, category, *turns):
        if has_lone_surrogate(text):
            raise UserError(f"a lone surrogate, which is no character, in {text!r:.80}")
    return WorkloadPrompt(prompt_id, category, tuple(turns))


def _keep(prompts: list[WorkloadPrompt], categories: Sequence[str], source: str) -> list[WorkloadPrompt]:
    present = {prompt.category for prompt in prompts}
    unknown = [category for category in categories if category not in present]
    if unknown:
        raise UserError(f"{source}: no category {unknown[0]!r}; there are {', '.join(sorted(present))}")
    return [prompt for prompt in prompts if prompt.category in categories]
