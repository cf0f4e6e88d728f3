"""From a deployment file to an address that answers, and back to nothing. Toy models on a real Ray."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray_checks import assert_nothing_left, wait_until
from toy_drafts import noisy_model
from toys import make_engine, random_prompts, run_tokens, toy_decoder, toy_model
from transformers import PreTrainedModel
from typer.testing import CliRunner
from vllm_server import free_port

from foredraft.integration.cli import app
from foredraft.integration.deploy.command_deploy import deploy
from foredraft.integration.deploy.schema import load_deployment
from foredraft.integration.deploy.start import start
from foredraft.integration.errors import UserError
from foredraft.integration.sampling_params import SamplingParams
from foredraft.scheduler.cluster import LocalCluster, connect, find_deployment

pytestmark = pytest.mark.ray

PROMPTS = random_prompts(3, seed=5, longest=12)
ENGINE = {"max_num_seqs": 4, "max_model_len": 128, "kv_cache_memory_gb": 0.1, "calibrate": False}


def saved(model: PreTrainedModel, folder: Path) -> str:
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def values(ray_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A deployment of a toy with a draft of its own, on a Ray that the commands find by ``auto``."""
    folder = tmp_path_factory.mktemp("models")
    config = {
        "model": saved(toy_model(), folder / "target"),
        "proposer": "draft",
        "dtype": "float32",
        "device": "cpu",
        "draft": {"model": saved(noisy_model(), folder / "draft"), "server_deadline_ms": 2000.0},
        "engine": ENGINE,
    }
    values = {
        "name": "toy",
        "strategy": "split",
        "cluster": {"address": "auto"},
        "variants": [{"name": "drafting", "cpus_per_worker": 1, "config": config}],
        "draft_service": {"check_every_s": 0.5},
        "server": {"port": free_port(), "api_key_env": "TOY_KEYS", "served_model_name": "toy"},
        "deadlines": {"drain_s": 5.0},
    }
    with pytest.MonkeyPatch.context() as patch, connect("local", local=LocalCluster(num_cpus=4, num_gpus=0)):
        patch.setenv("TOY_KEYS", "sesame, other")
        yield values
        assert_nothing_left(gpus=0)


def file_of(values: dict[str, Any], folder: Path, **changes: Any) -> Path:
    path = folder / "deployment.yaml"
    path.write_text(yaml.safe_dump(values | changes))
    return path


def post(port: int, body: dict[str, Any], key: str = "sesame") -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def token_ids(port: int) -> list[list[int]]:
    asked = {"max_tokens": 12, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
    return [post(port, asked | {"prompt": prompt})["choices"][0]["token_ids"] for prompt in PROMPTS]


def test_deployed_it_answers_survives_its_draft_and_goes(
    values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text is that of plain decoding, with the draft and without (F143)."""
    import ray

    path, port = file_of(values, tmp_path), values["server"]["port"]
    deploy(path)
    shown = capsys.readouterr()
    assert f"toy: http://127.0.0.1:{port}/v1" in shown.out
    assert "to the first token of every variant" in shown.err

    plain = run_tokens(
        make_engine(toy_decoder(capacity=128)), PROMPTS, SamplingParams(temperature=0, max_tokens=12)
    )
    assert token_ids(port) == plain
    with pytest.raises(urllib.error.HTTPError, match="401"):
        post(port, {"prompt": [1]}, key="wrong")
    with pytest.raises(UserError, match="name: a deployment 'toy' runs on this cluster already"):
        deploy(path)

    running = find_deployment("toy")
    ray.kill(running.worker("draft-drafting-0"), no_restart=True)
    assert token_ids(port) == plain
    wait_until(lambda: running.reports()[0].restarts == 1)
    wait_until(lambda: running.reports()[0].state == "running")
    assert token_ids(port) == plain

    status = json.loads(CliRunner().invoke(app, ["status", "toy", "--json"]).stdout)["deployments"][0]
    assert (status["state"], status["workers"][0]["restarts"]) == ("running", 1)
    removed = CliRunner().invoke(app, ["down", "toy"]).stdout
    assert "removed: its application and replicas; actors draft-drafting-0, supervisor; 1 place" in removed
    again = CliRunner().invoke(app, ["down", "toy"])
    assert (again.exit_code, again.stdout) == (0, "toy: nothing to remove\n")
    assert_nothing_left(gpus=0)


@pytest.mark.parametrize("stage", ["reserving", "draft-drafting-0 runs"])
def test_an_interrupt_removes_what_was_started(values: dict[str, Any], tmp_path: Path, stage: str) -> None:
    def interrupt(line: str) -> None:
        if line.startswith(stage):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(load_deployment(file_of(values, tmp_path)), interrupt)
    assert_nothing_left(gpus=0)


def changed(values: dict[str, Any], **config: Any) -> list[dict[str, Any]]:
    (variant,) = values["variants"]
    return [variant | {"config": variant["config"] | config}]


def test_what_cannot_run_is_one_line_and_leaves_nothing(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = [values["variants"][0] | {"cpus_per_worker": 64}]
    other = socket.create_server(("127.0.0.1", 0), reuse_port=True)
    taken = values["server"] | {"port": other.getsockname()[1]}
    cases = [
        ({"server": taken}, f"server: cannot listen at 127.0.0.1:{taken['port']}: Address already in use"),
        ({"variants": changed(values, device="cuda")}, "no plan fits"),
        ({"variants": huge}, "variants: drafting: no plan fits"),
        ({"variants": changed(values, model=str(tmp_path / "gone"))}, "variants: drafting: "),
        ({"replicas": 99}, "no plan fits"),
    ]
    for changes, message in cases:
        with pytest.raises(UserError, match=message) as refused:
            deploy(file_of(values, tmp_path, **changes))
        assert "\n" not in str(refused.value)
    other.close()
    monkeypatch.delenv("TOY_KEYS")
    with pytest.raises(UserError, match="environment variable TOY_KEYS holds no key"):
        deploy(file_of(values, tmp_path))
    assert_nothing_left(gpus=0)


def test_a_model_that_does_not_load_is_said_in_its_own_words(values: dict[str, Any], tmp_path: Path) -> None:
    """The files say how large it is, so it is planned; what is in them the replica finds out."""
    broken = tmp_path / "broken"
    saved(toy_model(), broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"model_type": "no-such-model"}))
    variants = changed(values, model=str(broken), proposer="ngram")
    path = file_of(values, tmp_path, strategy="colocate", variants=variants)
    started = time.monotonic()
    with pytest.raises(UserError, match="no-such-model") as refused:
        deploy(path)
    assert "\n" not in str(refused.value)
    assert time.monotonic() - started < 300
    assert_nothing_left(gpus=0)
