"""``foredraft plan``, run as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from foredraft.integration.cli import app
from foredraft.integration.errors import UserError

CONFIGS = Path(__file__).parents[2] / "configs"
TWO_NODES = CONFIGS / "cluster-two-nodes.yaml"
MODEL = ("--target", "llama-3.1-8b")


def plan(*arguments: object, cluster: Path = TWO_NODES) -> Result:
    return CliRunner().invoke(app, ["plan", "--cluster", str(cluster), *map(str, arguments)])


def refusal(*arguments: object, cluster: Path = TWO_NODES) -> str:
    result = plan(*arguments, cluster=cluster)
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def document(*arguments: object) -> dict[str, object]:
    result = plan(*arguments, "--json")
    assert result.exit_code == 0, result.output
    loaded: dict[str, object] = json.loads(result.stdout)
    return loaded


def test_the_table_and_the_reasons() -> None:
    result = plan(*MODEL, "--draft", "llama-3.2-1b", "--replicas", 3)
    assert result.exit_code == 0
    assert "colocate: 3 replicas" in result.stdout
    assert "3 targets" in result.stdout
    assert "strategy colocate: fastest by prediction" in result.stdout
    assert "not split: " in result.stdout
    assert "with an assumed acceptance of 0.75, 0.7" in result.stdout


def test_json_is_the_plan() -> None:
    result = document(*MODEL, "--draft", "llama-3.2-1b", "--strategy", "split", "--replicas", 2)
    assert result["strategy"] == "split"
    assert [replica["draft"] for replica in result["replicas"]] == [0, 1]  # type: ignore[attr-defined]
    assert len(result["drafts"]) == 2  # type: ignore[arg-type]


def test_numbers_mean_the_same_as_the_name() -> None:
    numbers = "weights=16.06e9,kv=131072,layers=32,hidden=4096"
    named, given = (document("--target", target, "--proposer", "none") for target in (*MODEL[1:], numbers))
    assert given["replicas"] == named["replicas"]
    assert given["tokens_per_s"] == pytest.approx(named["tokens_per_s"], rel=0.1)


def test_a_configuration_says_the_models_and_sizes(tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(
        "model: llama-3.1-70b\nproposer: draft\nnum_draft_tokens: 2\n"
        "draft: {model: llama-3.2-1b}\nengine: {max_num_seqs: 4, max_model_len: 512}\n"
    )
    result = document("--config", config, "--tensor-parallel", 4)
    memory = result["replicas"][0]["target"]["memory"]  # type: ignore[index]
    kv_bytes = 2 * 16 * 8 * 64 * 2 * 4 * 512
    assert memory["weights_bytes"] == 70.6e9 * 2 / 4
    assert memory["draft_bytes"] == int(1.24e9 * 2) + kv_bytes
    assert result["num_draft_tokens"] == 2


def test_the_draft_that_comes_with_the_built_in_model() -> None:
    result = document("--proposer", "draft", "--on", "cpu")
    memory = result["replicas"][0]["target"]["memory"]  # type: ignore[index]
    assert 0 < memory["draft_bytes"] < memory["weights_bytes"]


def test_of_several_proposers_the_draft_model_needs_a_place() -> None:
    memory = document("--proposer", "ngram,draft", "--on", "cpu")["replicas"][0]["target"]["memory"]  # type: ignore[index]
    assert memory["draft_bytes"] > 0
    memory = document("--proposer", "auto", *MODEL)["replicas"][0]["target"]["memory"]  # type: ignore[index]
    assert memory["draft_bytes"] == 0  # none is known for this model


def test_leaving_the_model_early_costs_its_first_layers() -> None:
    speeds = [
        document(*MODEL, "--proposer", "early_exit", "--set", f"early_exit.exit_layer={layer}")[
            "tokens_per_s"
        ]
        for layer in (2, 30)
    ]
    assert speeds[0] > speeds[1]  # type: ignore[operator]


def test_a_folder_in_transformers_layout(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    (tmp_path / "model.safetensors").write_bytes(bytes(100_000))
    memory = document("--target", tmp_path)["replicas"][0]["target"]["memory"]  # type: ignore[index]
    assert memory["weights_bytes"] == 100_000


def test_labels_send_drafts_to_their_node() -> None:
    labels = ("--target-label", "pool=targets", "--draft-label", "pool=drafts")
    result = document(*MODEL, "--draft", "llama-3.2-1b", "--strategy", "split", *labels)
    assert result["drafts"][0]["bundles"][0]["node"] == "small"  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--target", "llama-9"), "--target: should be one of llama-3.1-8b, "),
        ((*MODEL, "--draft", "weights=1e9,kv=10"), "--draft: needs each of weights, kv, layers"),
        ((*MODEL, "--draft", "weights=1e9,kv=10,layers=0"), "--draft: needs NAME=NUMBER"),
        ((*MODEL, "--draft", "weights=1e9,kv=10,layers=2,size=3"), "--draft: needs each of weights"),
        ((*MODEL, "--draft", "llama-3.2-1b", "--proposer", "ngram"), "--draft: means nothing with proposer"),
        ((*MODEL, "--proposer", "draft"), "--draft: no draft comes with"),
        ((*MODEL, "--replicas", 13), "colocate: GPUs: no place for 1 of the 13 needed"),
        ((*MODEL, "--replicas", 0), "--replicas: should be from 1 to 100000 (got 0)"),
        ((*MODEL, "--draft", "weights=1e12,kv=1000,layers=10"), "1000.0 GB for the draft"),
        ((*MODEL, "--tensor-parallel", 16), "GPUs: no place for 16 of the 16 needed, 16 in one node"),
        ((*MODEL, "--strategy", "split"), "strategy: should be auto or colocate"),
        ((*MODEL, "--acceptance", "0.5,x"), "--acceptance: needs shares from 0 to 1"),
        ((*MODEL, "--acceptance", "nan"), "--acceptance: needs shares from 0 to 1"),
        ((*MODEL, "--gpu-share", "nan"), "gpu_share: should be one of 1, 0.5"),
        ((*MODEL, "--weight-bytes", "nan"), "--weight-bytes: should be from 0.25 to 4"),
        ((*MODEL, "--address", "10.0.0.1:6379"), "--address: goes with --cluster auto, not with a file"),
        ((*MODEL, "--target-label", "pool"), "--target-label: needs KEY=VALUE"),
        ((*MODEL, "--target-label", "pool=none"), "no node is labelled pool=none"),
    ],
)
def test_refusals(arguments: tuple[object, ...], message: str) -> None:
    assert message in refusal(*arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: [{name: a, gpus: 1, gpu: h100, cpus: 1, memory_gb: 8, disk: 3}]", "disk: unknown field"),
        ("nodes: [{name: a, gpus: 1, gpu: h9, cpus: 1, memory_gb: 8}]", "gpu: should be one of h100"),
        ("nodes: [{name: a, gpus: 1, cpus: 1, memory_gb: 8}]", "gpu must say which kind"),
        ("nodes: [{name: a, gpus: -1, cpus: 1, memory_gb: 8}]", "greater than or equal to 0 (got -1)"),
        ("nodes: [{name: a, cpus: 1}]", "nodes.0.memory_gb: Field required"),
        ("nodes: []", "nodes: List should have at least 1 item"),
        ("nodes: [{name: a, cpus: 1, memory_gb: 1}, {name: a, cpus: 1, memory_gb: 1}]", "2 are called 'a'"),
        ("machines: []", "machines: unknown field"),
        ("{", "not YAML"),
    ],
)
def test_cluster_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    said = refusal(*MODEL, cluster=path)
    assert message in said or (text == "{" and "mine.yaml" in said)
    assert "mine.yaml" in said


DEPLOYMENT = """
name: both
cluster: {address: auto}
replicas: 2
variants:
  - {name: plain, config: {model: smollm2-135m, proposer: none}}
  - {name: drafted, config: {model: smollm2-135m, proposer: draft}, replicas: 9, strategy: colocate}
"""


def test_the_variants_of_a_deployment_share_the_cluster(tmp_path: Path) -> None:
    path = tmp_path / "ray-both.yaml"
    path.write_text(DEPLOYMENT)
    variants = document("--deployment", path)["variants"]
    plans = [variants["plain"], variants["drafted"]]  # type: ignore[index]
    used = [one["target"]["bundles"][0]["node"] for plan in plans for one in plan["replicas"]]
    assert [len(plan["replicas"]) for plan in plans] == [2, 9]
    assert used.count("large") == 8
    assert used.count("small") == 3


def test_a_deployment_says_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "ray-both.yaml"
    path.write_text(DEPLOYMENT.replace("replicas: 9", "replicas: 11"))
    assert "variants: drafted: " in refusal("--deployment", path)
    assert "beside it there are only --cluster" in refusal("--deployment", path, *MODEL)
    assert "beside it there are only --cluster" in refusal("--deployment", path, "--proposer", "draft")


def test_the_cluster_has_to_be_said() -> None:
    result = CliRunner().invoke(app, ["plan", *MODEL])
    assert (result.exit_code, "cluster" in result.output) == (2, True)
    assert "MISSING" not in CliRunner().invoke(app, ["plan", "--help"]).output


def test_no_such_cluster_file(tmp_path: Path) -> None:
    assert "No such file" in refusal(*MODEL, cluster=tmp_path / "none.yaml")


def test_a_refusal_is_one_line_and_exit_code_2() -> None:
    command = [sys.executable, "-c", "from foredraft.integration.cli import main; main()", "plan"]
    command += ["--cluster", str(TWO_NODES), *MODEL, "--replicas", "99"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no plan fits; colocate: GPUs: no place for 87 of the 99")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
