"""The manifest for KubeRay: its own fields, and the deployment file inside it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from foredraft.integration.deploy.schema import load_deployment

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((Path(__file__).parent / "kuberay.schema.json").read_text())


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    text = (ROOT / "configs" / "kuberay.yaml").read_text()
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_the_job_has_kuberays_fields_only(documents: dict[str, Any]) -> None:
    jsonschema.validate(documents["RayJob"], SCHEMA)
    broken = copy.deepcopy(documents["RayJob"])
    broken["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["minReplica"] = 2
    with pytest.raises(jsonschema.ValidationError, match="minReplica"):
        jsonschema.validate(broken, SCHEMA)


def test_the_deployment_inside_is_valid_and_listens_where_the_pods_say(
    documents: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text(documents["ConfigMap"]["data"]["deployment.yaml"])
    server = load_deployment(path).file.server
    head = documents["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert server.port in [port["containerPort"] for port in head["ports"]]
    assert server.api_key_env in documents["Secret"]["stringData"]
    assert server.port in [rule["port"] for rule in documents["NetworkPolicy"]["spec"]["ingress"][1]["ports"]]


def test_what_is_mounted_and_referred_to_is_there(documents: dict[str, Any]) -> None:
    pod = documents["RayJob"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"][0]["secretRef"]["name"] == documents["Secret"]["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]
    mount = pod["containers"][0]["volumeMounts"][0]
    assert documents["RayJob"]["spec"]["entrypoint"].endswith(f"{mount['mountPath']}/deployment.yaml")
