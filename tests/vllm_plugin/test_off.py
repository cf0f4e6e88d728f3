"""Installed but off, the plugin leaves vLLM alone; and what it says about itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

SCRIPT = """
import sys
sys.path.insert(0, {support!r})
from pathlib import Path
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm_toys import make_llm, run

CLASSES = (EngineArgs, SamplingParams, GPUModelRunner)
def attributes():
    return {{(owner.__name__, name): value for owner in CLASSES for name, value in vars(owner).items()}}

originals = attributes()
llm = make_llm(Path({folder!r}))
assert llm.llm_engine.vllm_config.speculative_config is None
assert llm.llm_engine.vllm_config.additional_config == {{}}
run(llm, [[1, 2, 3]], SamplingParams(max_tokens=4, detokenize=False))
now = attributes()
assert now.keys() == originals.keys()
changed = [key for key, value in originals.items() if now[key] is not value]
assert changed == {changed!r}, changed
for key in changed:
    assert now[key].__wrapped__ is originals[key]
    from foredraft.integration.vllm.watch import WATCH
    WATCH.remove()
    assert attributes() == originals
loaded = [name for name in sys.modules if name.startswith("foredraft.")]
assert "foredraft.verifier" not in loaded and "foredraft.proposers" not in loaded, loaded
print("vLLM's own")
"""

WATCHED = [("EngineArgs", "create_speculative_config")]


@pytest.mark.parametrize(
    ("plugins", "changed"), [(None, WATCHED), ("other", [])], ids=["installed", "kept out"]
)
def test_installed_but_off_vllm_is_its_own(
    toy: Path, plugins: str | None, changed: list[tuple[str, str]]
) -> None:
    """Every attribute of the classes that hooks may patch, but the one by which an engine asks.

    An installed plugin is called once, before it can know what an engine will be told, and vLLM offers it no
    other place to learn that; ``VLLM_PLUGINS`` keeps that one out too.
    """
    support = str(Path(__file__).resolve().parents[1] / "support")
    environment = {} if plugins is None else {"VLLM_PLUGINS": plugins}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(support=support, folder=str(toy), changed=changed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=toy,  # not the checkout: what lies there may hide the installed entry point
        env=os.environ | environment,
    )
    assert done.stdout.strip().endswith("vLLM's own"), done.stderr[-2000:]


def test_an_engine_that_does_not_ask_gets_what_vllm_would_give(toy: Path) -> None:
    """The one replaced method hands over to vLLM's with nothing changed."""
    from vllm.engine.arg_utils import EngineArgs

    args = EngineArgs(model=str(toy), additional_config={"other": 1}, skip_tokenizer_init=True)
    before = dict(vars(args))
    model_config = args.create_model_config()
    assert args.create_speculative_config(model_config, None) is None
    assert {name for name in before if vars(args)[name] is not before[name]} == set()


def run_doctor(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "foredraft.integration.cli", "vllm", "doctor"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env=os.environ | environment,
    )


def test_doctor_lists_versions_and_hooks(tmp_path: Path) -> None:
    done = run_doctor(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "vLLM 0.32.0: supported" in done.stdout
    for name in ("options", "admission", "sample", "draft", "length limit", "release"):
        assert f"  {name}: vllm." in done.stdout
    assert "plugin: installed" in done.stdout
    assert "plugin: kept out by VLLM_PLUGINS=other" in run_doctor(tmp_path, VLLM_PLUGINS="other").stdout


def test_what_does_not_work_together_is_refused_by_name(toy: Path) -> None:
    from vllm import LLM
    from vllm_toys import make_llm

    assert LLM is not None
    with pytest.raises(ValueError, match="speculative_config: foredraft is asked to draft too"):
        make_llm(toy, {}, speculative_config={"method": "ngram", "num_speculative_tokens": 3})
    with pytest.raises(ValueError, match="pipeline_parallel_size: foredraft needs 1"):
        make_llm(toy, {}, pipeline_parallel_size=2)
    with pytest.raises(ValueError, match="distributed_executor_backend: foredraft needs mp, ray or uni"):
        make_llm(toy, {}, distributed_executor_backend="external_launcher")
    with pytest.raises(ValueError, match="logits_processors: they do not work with drafts"):
        make_llm(toy, {}, logits_processors=["some.module:Processor"])
    connector = {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}
    with pytest.raises(ValueError, match="kv_transfer_config: KV connectors have not been tried"):
        make_llm(toy, {}, kv_transfer_config=connector)
    with pytest.raises(ValueError, match="kv_offloading_size: KV connectors have not been tried"):
        make_llm(toy, {}, kv_offloading_size=1.0)


def test_an_installed_logits_processor_is_refused_instead_of_left_out(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm_toys import make_llm

    installed = tmp_path / "biased-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: biased\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[vllm.logits_processors]\nbiased = biased:Biased\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="logits_processors: biased is installed as one"):
        make_llm(toy, {})
