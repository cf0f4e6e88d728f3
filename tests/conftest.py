"""What tests of several folders share: tests that start Ray, and the environment its processes inherit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

SUPPORT = Path(__file__).resolve().parent / "support"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if find_spec("ray") is None and item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.skip(reason="ray is not installed (pip install foredraft[ray])"))


@pytest.fixture(scope="module")
def ray_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray's processes find the support code, and none of ours finds somebody else's Ray or deployments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Else they get what the tests, and whatever else runs, leave of the CPUs.
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("FOREDRAFT_STATE", str(tmp_path_factory.mktemp("state")))
        yield
