"""What an early exit keeps in memory, and that it is planned for."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from toy_drafts import toy_target
from toy_exits import NUM_LAYERS, decoder_of, exit_config, exit_model, refusal, trained_exit, written_exit

from foredraft.integration.embedded.build import _bytes_per_position, build_engine
from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.embedded.exit_loading import load_exit
from foredraft.integration.embedded.target import Target
from foredraft.proposers.early_exit import MOST_UNREAD

MODEL = exit_model()


@pytest.fixture(scope="module")
def target() -> Target:
    return toy_target(MODEL)


def cache_bytes(engine: EmbeddedEngine) -> int:
    cache = decoder_of(engine).cache
    return sum(one.untyped_storage().nbytes() for one in (cache.keys, cache.values))


def test_the_own_head_keeps_nothing(target: Target) -> None:
    """0 bytes of keys, values, states and weights over plain decoding."""
    none = build_engine(exit_config(proposer="none"), target)
    before = live_bytes()
    engine = build_engine(exit_config("own", 2), target)
    assert cache_bytes(engine) == cache_bytes(none)
    assert decoder_of(engine).hidden_states is None
    assert live_bytes() - before == cache_bytes(engine)


@pytest.mark.parametrize("states", [False, True], ids=["plain", "reads states"])
@pytest.mark.parametrize("num_blocks", [1, 2])
def test_a_trained_head_keeps_its_own_keys_and_values(
    target: Target, tmp_path: Path, num_blocks: int, states: bool
) -> None:
    """And the newest states of each row, at the exit and last; the target's weights and cache are there once
    (F91, F123)."""
    file = trained_exit(MODEL, 1, num_blocks=num_blocks, reads_states=states)
    config = exit_config(written_exit(tmp_path, file))
    none = build_engine(exit_config(proposer="none"), target)
    before = live_bytes()
    engine = build_engine(config, target)
    decoder = decoder_of(engine)
    own = num_blocks * 2 * 2 * 16 * 4  # blocks, keys and values, key heads, head size, bytes of a number
    assert cache_bytes(engine) == cache_bytes(none) + 3 * 128 * own
    kept = 0 if decoder._states is None else decoder._states.states.untyped_storage().nbytes()
    assert kept == (3 * MOST_UNREAD * 64 * 4 if states else 0)
    assert decoder.exit_backlog is not None
    waiting = decoder.exit_backlog._at_exit.states.untyped_storage().nbytes()
    assert waiting == 3 * MOST_UNREAD * 64 * 4
    weights = sum(tensor.numel() * 4 for tensor in file.tensors.values())
    extra = live_bytes() - before - cache_bytes(engine) - kept - waiting
    # Of the head alone. Weights are packed, and its one-token embedding and the rotary table are small.
    assert weights <= extra < 1.1 * weights + 2000
    assert extra < 0.5 * sum(one.numel() * 4 for one in MODEL.parameters()) * num_blocks
    assert _bytes_per_position(target, None, load_exit(config.early_exit, target)) == cache_bytes(engine) // (
        3 * 128
    )


def live_bytes() -> int:
    """Bytes of all tensors in this process, shared memory once; packed weights by their numbers."""
    gc.collect()
    storages: dict[int, int] = {}
    for one in gc.get_objects():
        if type(one) in (torch.Tensor, torch.nn.Parameter):
            if one.is_mkldnn:
                storages[id(one)] = one.numel() * one.element_size()
            else:
                storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    return sum(storages.values())


def test_the_heads_memory_is_planned(target: Target, tmp_path: Path) -> None:
    """Rows that fit, and the refusal where not even one does."""
    path = written_exit(tmp_path, trained_exit(MODEL, 1, num_blocks=2))
    needed = (NUM_LAYERS + 2) * 2 * 2 * 16 * 4
    sizes = {"max_num_seqs": 3, "max_model_len": 128, "kv_cache_memory_gb": needed * 128 * 2 / 1e9}
    assert decoder_of(build_engine(exit_config(path, engine=sizes), target)).num_rows == 2
    too_small = sizes | {"kv_cache_memory_gb": (needed * 128 - 1) / 1e9}
    assert "set engine.max_model_len to at most 127" in refusal(exit_config(path, engine=too_small), target)
    assert decoder_of(build_engine(exit_config("own", 1, engine=too_small), target)).num_rows == 1
