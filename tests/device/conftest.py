"""The device these tests run on: the CPU, or what FOREDRAFT_TEST_DEVICE names (``make gpu-check``: cuda)."""

import os

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device(os.environ.get("FOREDRAFT_TEST_DEVICE", "cpu"))
