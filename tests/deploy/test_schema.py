"""The deployment file: what is in configs/ is valid, and what cannot be is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from foredraft.integration.deploy.schema import load_deployment
from foredraft.integration.errors import UserError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("ray-*.yaml")), ids=lambda path: path.stem)
def test_what_is_shipped_is_valid(path: Path) -> None:
    deployment = load_deployment(path)
    assert set(deployment.configs) == {variant.name for variant in deployment.file.variants}


def test_a_variant_may_be_a_file_beside_this_one() -> None:
    deployment = load_deployment(CONFIGS / "ray-ab.yaml")
    assert [deployment.config(name).proposer for name in ("stable", "candidate")] == ["ngram", "draft"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "Up"}, "name: needs 1 to 40 lower-case letters"),
        ({"nmae": "a", "name": "a"}, "nmae: unknown field; did you mean name?"),
        ({"engine": "tgi"}, "engine: Input should be 'embedded' or 'vllm'"),
        ({"cluster": {"address": "head"}}, "cluster: address: should be auto, local, host:port"),
        ({"cluster": {"address": "auto", "num_gpus": 2}}, "num_gpus is for address local"),
        ({"cluster": {"adress": "auto"}}, "cluster.adress: unknown field; did you mean cluster.address?"),
        ({"replicas": "2"}, "replicas: Input should be a valid integer"),
        ({"variants": []}, "variants: List should have at least 1 item"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "variants: the name a is given twice"),
        ({"variants": [{"weight": 0}]}, "variants: one at least needs a weight above 0"),
        ({"variants": [{"tensor_parallel": 2}]}, "default: tensor_parallel needs engine vllm"),
        ({"variants": [{"vllm_options": {"a": 1}}]}, "default: vllm_options needs engine vllm"),
        ({"engine": "vllm", "strategy": "split"}, "engine vllm drafts beside its target"),
        (
            {"variants": [{"config": {"proposer": "magic"}}]},
            "variants: default: config: proposer: should be one of",
        ),
        (
            {"variants": [{"config": {"draft": {"server": "x"}}}]},
            "draft.server: is what the deployment itself sets",
        ),
        ({"variants": [{"config": "gone.yaml"}]}, "variants: default: config: config file"),
        ({"autoscaling": {"min_replicas": 3, "max_replicas": 2}}, "min_replicas (3) must not exceed"),
        ({"server": {"port": 0}}, "server.port: Input should be greater than or equal to 1"),
        ({"server": {"api_key_env": "a b"}}, "server.api_key_env: String should match"),
        ({"deadlines": {"start_s": -1}}, "deadlines.start_s: Input should be greater than 0"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, values: dict[str, object], message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump({"name": "a"} | values))
    with pytest.raises(UserError) as refused:
        load_deployment(path)
    assert message in str(refused.value)
