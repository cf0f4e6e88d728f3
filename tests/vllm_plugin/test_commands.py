"""``foredraft generate`` and ``compare`` with ``--engine vllm``: each engine in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from letters import TOKENIZER
from vllm_toys import toy_folder

from foredraft.integration import cli

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = toy_folder(tmp_path_factory.mktemp("commands"), vocab_size=257, num_layers=1, head_scale=0.5)
    TOKENIZER.save_pretrained(folder)
    return folder


def foredraft(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "foredraft.integration.cli", command, "--model", str(folder)]
    whole += ["--engine", "vllm", "--vllm", "enforce_eager=true", "--dtype", "float32"]
    whole += ["--set", "engine.kv_cache_memory_gb=0.1", "--max-model-len", "256", *arguments]
    return subprocess.run(
        whole,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=folder,
        env=os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
    )


def test_generate_streams_and_counts(folder: Path) -> None:
    given = ("abcabcabcabc", "--raw", "--max-tokens", "100", "--json", "--set", "ngram.min_n=1")
    done = foredraft(folder, "generate", *given)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout)
    assert document["usage"] == {"prompt_tokens": 12, "completion_tokens": 100, "total_tokens": 112}
    speculation = document["speculation"]
    assert 0 < speculation["accepted_tokens"] <= speculation["drafted_tokens"]
    assert speculation["target_passes"] == 100 - speculation["accepted_tokens"]


def test_compare_with_vllms_own_method(folder: Path) -> None:
    """The baseline is a stock vLLM; greedy output is the same, and what vLLM does not tell is null."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f'{{"id": "p{n}", "turns": ["abc{n}abc{n}abc{n}"]}}\n' for n in range(4)))
    result = folder / "result.json"
    given = ["--proposers", "ngram,vllm:ngram", "--workload", str(prompts), "--repeats", "1"]
    given += ["--batch-sizes", "2", "--max-tokens", "60", "--json", str(result)]
    done = foredraft(folder, "compare", *given)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["config"]: row for row in json.loads(result.read_text())["results"]}
    assert list(rows) == ["none", "ngram", "vllm:ngram"]
    for name, row in rows.items():
        assert row["outputs_equal"] is True
        assert row["emitted_tokens"] == 4 * 60
        assert row["memory_bytes"] is row["ideal_speedup"] is None
        assert row["proposer_faults"] == 0
        assert (0 < row["accepted_tokens"] <= row["drafted_tokens"]) == (name != "none")
    assert rows["ngram"]["time_split"].keys() == {"propose", "sample", "rest"}
    assert rows["none"]["time_split"] is rows["vllm:ngram"]["time_split"] is None
    assert "engine: vLLM" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            ["generate", "hello", "--vllm", "enforce_eager=true"],
            "--vllm: means nothing without",
        ),
        (
            ["generate", "hello", "--proposer", "vllm:ngram"],
            "is vLLM's own; it needs --engine vllm",
        ),
        (["generate", "hello", "--engine", "vllm", "--vllm", "enforce_eager"], "needs KEY=VALUE"),
        (["compare", "--engine", "vllm", "--check-law"], "--check-law: means nothing with --engine vllm"),
        (["serve", "--proposer", "vllm:ngram"], "ask for it with speculative_config"),
        (["serve", "--max-model-len", "99999999"], "vllm: 1 validation error"),
    ],
)
def test_refusals_are_one_line_and_code_2(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    named: str,
) -> None:
    # As outside of tests; else vLLM warns, on the stderr that its log was set up with, which is closed now.
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    monkeypatch.setattr("sys.argv", ["foredraft", *arguments, "--set", f"model={folder}"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert named in error
    assert "Traceback" not in error
