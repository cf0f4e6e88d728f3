"""The JSON schemas of the results: made from their classes, kept as files for programs in other languages.

``python -m foredraft.integration.compare.results.schema`` writes the files anew; a test holds them against
the classes.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from foredraft.integration.compare.online.model import OnlineDocument
from foredraft.integration.compare.results.base import Part
from foredraft.integration.compare.results.model import ResultDocument

SCHEMA_FILES: dict[str, type[Part]] = {
    "result.schema.json": ResultDocument,
    "online.schema.json": OnlineDocument,
}


def make_schema(document: type[Part]) -> dict[str, Any]:
    """The schema as the classes say."""
    schema = document.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def kept_schema(file_name: str = "result.schema.json") -> dict[str, Any]:
    """A schema file of the package."""
    text = files(__package__).joinpath(file_name).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


if __name__ == "__main__":
    for name, kind in SCHEMA_FILES.items():
        text = json.dumps(make_schema(kind), indent=2) + "\n"
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")
