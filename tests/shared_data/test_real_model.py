"""The built-in model on real prompts: float32 output is the same, token for token, with speculation on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PROMPTS = os.environ.get("FOREDRAFT_SHARED_DATA")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.shared_data,
    pytest.mark.skipif(not PROMPTS, reason="FOREDRAFT_SHARED_DATA names no prompt file"),
]


def identity(*arguments: str) -> None:
    command = [sys.executable, str(BENCHMARKS / "identity.py"), "--workload", str(PROMPTS), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_greedy_identity_on_every_prompt_in_batches() -> None:
    identity("--batch-sizes", "8")


def test_greedy_identity_alone() -> None:
    """Every prompt alone takes too long for CI; ``make identity`` does that."""
    identity("--limit", "60", "--batch-sizes", "8,1")


def test_greedy_identity_with_the_shipped_draft() -> None:
    identity("--proposer", "draft", "--limit", "40", "--batch-sizes", "8,1", "--draft-tokens", "2")


def test_greedy_identity_with_the_shipped_exit_head() -> None:
    identity("--proposer", "early_exit", "--limit", "40", "--batch-sizes", "8,1", "--draft-tokens", "2")


def test_seeded_identity() -> None:
    identity("--limit", "30", "--temperature", "1", "--top-p", "0.9", "--draft-tokens", "3,8")
