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
from vllm_toys import make_llm, run
from vllm import SamplingParams
from foredraft.integration.vllm.watch import WATCH
from foredraft.integration.vllm.request_hooks import REQUEST_HOOKS
from foredraft.integration.vllm.runner_hooks import RUNNER_HOOKS

hooks = [*REQUEST_HOOKS.hooks, *RUNNER_HOOKS.hooks]
def attributes():
    return [vars(owner)[name] for owner, name in (hook.owner() for hook in hooks)]

originals = attributes()
llm = make_llm(Path({folder!r}))
assert WATCH.applied, "vLLM has loaded the plugin"
run(llm, [[1, 2, 3]], SamplingParams(max_tokens=4, detokenize=False))
assert all(now is before for now, before in zip(attributes(), originals)), "off means vLLM's own"
assert llm.llm_engine.vllm_config.speculative_config is None
assert "foredraft.verifier" not in sys.modules and "foredraft.proposers" not in sys.modules
WATCH.remove()
print("vLLM's own")
"""


def test_installed_but_off_every_patched_attribute_is_vllms_own(toy: Path) -> None:
    """All but the one that reads what an engine asks for."""
    support = str(Path(__file__).resolve().parents[1] / "support")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(support=support, folder=str(toy))],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=toy,  # not the checkout: what lies there may hide the installed entry point
    )
    assert done.stdout.strip().endswith("vLLM's own"), done.stderr[-2000:]


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
    with pytest.raises(ValueError, match="logits_processors"):
        make_llm(toy, {}, logits_processors=["some.module:Processor"])
