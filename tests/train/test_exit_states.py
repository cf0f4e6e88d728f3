"""The states that an exit head is given, against a plain transformers forward."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from foredraft.integration.config import Config
from foredraft.integration.embedded.build import load_target
from foredraft.integration.train.exit_states import make_exit_states, typical_size
from foredraft.integration.train.pieces import Piece, cut
from foredraft.integration.train.samples import Sample

HIDDEN_SIZE = 64


@pytest.fixture
def pieces(random_samples: Callable[..., list[Sample]]) -> list[Piece]:
    return cut(random_samples(count=12))


@pytest.fixture
def make(tmp_path: Path, deep_config: Config, pieces: list[Piece]) -> Callable[..., list[Tensor]]:
    """States in shards of about 100 tokens."""

    def run(load: object = None, target_name: str = "deep", exit_layer: int = 2) -> list[Tensor]:
        given = load or (lambda: load_target(deep_config))
        return make_exit_states(
            tmp_path / "states", pieces, target_name, exit_layer, given, HIDDEN_SIZE, shard_tokens=100
        )

    return run


@pytest.mark.parametrize("exit_layer", [1, 2, 3])
def test_they_are_the_state_after_so_many_layers(
    make: Callable[..., list[Tensor]], pieces: list[Piece], deep_folder: Path, exit_layer: int
) -> None:
    model = AutoModelForCausalLM.from_pretrained(deep_folder, dtype=torch.float32)
    found = make(exit_layer=exit_layer)
    assert len(found) == len(pieces)
    for piece, states in zip(pieces, found, strict=True):
        with torch.no_grad():
            output = model(torch.tensor([piece.token_ids]), output_hidden_states=True)
        assert states.dtype == torch.bfloat16
        # bfloat16 keeps 8 bits: a relative error of 2^-9.
        torch.testing.assert_close(states.float(), output.hidden_states[exit_layer][0], rtol=2**-8, atol=1e-3)


def test_what_is_there_is_not_made_again(make: Callable[..., list[Tensor]]) -> None:
    # A copy: states are a view of their file.
    first = [states.clone() for states in make()]
    second = make(load=pytest.fail)
    assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


@pytest.mark.parametrize("other", [{"target_name": "another"}, {"exit_layer": 3}])
def test_those_of_another_target_or_layer_are_made_again(
    make: Callable[..., list[Tensor]], other: dict[str, object]
) -> None:
    make()
    with pytest.raises(pytest.fail.Exception):
        make(load=lambda: pytest.fail("asked for the target"), **other)


def test_the_size_is_a_mean_over_positions() -> None:
    states = [torch.full((3, 4), 2.0), torch.full((1, 4), -6.0)]
    assert typical_size(states) == pytest.approx(3.0)
