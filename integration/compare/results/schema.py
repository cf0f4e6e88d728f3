"""The JSON schema of the result: made from ``model.py``, kept beside it for programs in other languages.

``python -m foredraft.integration.compare.results.schema`` prints it; a test holds the kept file against that.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from foredraft.integration.compare.results.model import ResultDocument

FILE_NAME = "result.schema.json"


def make_schema() -> dict[str, Any]:
    """The schema as the classes say."""
    schema = ResultDocument.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def kept_schema() -> dict[str, Any]:
    """The schema file of the package."""
    text = files(__package__).joinpath(FILE_NAME).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


if __name__ == "__main__":
    print(json.dumps(make_schema(), indent=2))
