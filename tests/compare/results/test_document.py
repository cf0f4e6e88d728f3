import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest

from foredraft.integration.compare.offline.block_run import BlockRun
from foredraft.integration.compare.offline.measure import MeasuredBlock
from foredraft.integration.compare.offline.output_check import Difference
from foredraft.integration.compare.plan import Cell, ComparePlan
from foredraft.integration.compare.results.document import RunFacts, result_document
from foredraft.integration.compare.results.model import ResultDocument
from foredraft.integration.compare.results.provenance import commit, environment, run_label
from foredraft.integration.compare.results.schema import SCHEMA_FILES, kept_schema, make_schema
from foredraft.integration.embedded.build import Target

MakeRun = Callable[..., BlockRun]


@pytest.fixture
def document(make_run: MakeRun, make_plan: Callable[..., ComparePlan], toy_target: Target) -> dict[str, Any]:
    """As ``--json`` writes it; the second cell has a difference, and the third no interval."""
    plan = make_plan(workloads=("toy", "prose"), batch_sizes=(1, 8))
    cells = [Cell("toy", 1, 0.0)] * 6 + [Cell("prose", 1, 0.0)] * 6 + [Cell("toy", 8, 0.0)]
    blocks = [
        MeasuredBlock(
            cell,
            number,
            ["p"],
            {"none": make_run(1.0), "ngram": make_run(0.5, drafted=10, accepted=6)},
            {
                "none": [None],
                "ngram": [Difference(3, 0.25, 0.1, False) if cell.workload == "prose" else None],
            },
        )
        for number, cell in enumerate(cells)
    ]
    started_at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    facts = RunFacts(4, environment(toy_target), started_at, seconds=9.5, interrupted=True)
    written: dict[str, Any] = json.loads(
        json.dumps(result_document(blocks, plan, facts).model_dump(mode="json"), allow_nan=False)
    )
    return written


def test_the_document_validates_against_the_schema(document: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(kept_schema())
    jsonschema.validate(document, kept_schema(), jsonschema.Draft202012Validator)
    assert [row["verdict"] for row in document["results"]] == [
        *(None, "faster", None, "too few blocks", None, "output differs")
    ]
    assert [row["verdict"] for row in document["overall"]] == ["output differs"]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("seed"),
        lambda document: document.update(more=1),
        lambda document: document["results"][1].update(verdict="better"),
        lambda document: document["results"][1].pop("speedup_low"),
        lambda document: document["results"][1].update(speedup="fast"),
        lambda document: document.update(schema_version=1),
    ],
)
def test_the_schema_refuses_what_is_no_result(
    document: dict[str, Any], change: Callable[[dict[str, Any]], Any]
) -> None:
    change(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, kept_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("file_name", SCHEMA_FILES)
def test_the_kept_schema_is_that_of_the_classes(file_name: str) -> None:
    """After a change: python -m foredraft.integration.compare.results.schema"""
    assert kept_schema(file_name) == make_schema(SCHEMA_FILES[file_name])


@pytest.mark.parametrize("file_name", SCHEMA_FILES)
def test_every_field_is_explained(file_name: str) -> None:
    schema = kept_schema(file_name)
    parts = [schema, *schema["$defs"].values()]
    fields = [(part["title"], name, field) for part in parts for name, field in part["properties"].items()]
    assert [(title, name) for title, name, field in fields if "description" not in field] == []


def test_the_document_comes_back_from_its_json(document: dict[str, Any]) -> None:
    assert ResultDocument.model_validate(document).model_dump(mode="json") == document


def test_the_document_says_where_the_figures_come_from(
    document: dict[str, Any], toy_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (document["seed"], document["started_at"]) == (0, "2025-01-02T03:04:05+00:00")
    assert (document["seconds"], document["interrupted"]) == (9.5, True)
    assert document["configs"]["ngram"]["ngram"]["min_n"] == 1
    # One comparison in each of 4 cells and in 2 wholes, one look: a fixed design.
    assert document["design"]["interval_level"] == pytest.approx(1 - 0.05 / 6)
    ran = document["environment"]
    assert (ran["model"], ran["dtype"], ran["gpu"]) == ("toy", "float32", None)
    assert all(ran[name] for name in ("python", "torch", "transformers", "foredraft", "cpu"))
    label = run_label(ran)
    assert label.startswith("toy, float32, ")
    assert label.endswith(f"{ran['num_threads']} threads")


def test_the_command_is_as_one_would_type_it(
    make_plan: Callable[..., ComparePlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/foredraft", "compare", "--set", "sampling.stop=[a b]"])
    facts = RunFacts(1, {}, datetime.now(UTC), 1.0, interrupted=False)
    assert result_document([], make_plan(), facts).command == "foredraft compare --set 'sampling.stop=[a b]'"


def test_the_commit_is_unknown_where_git_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert commit() is None
