import torch

from foredraft.integration.train.batches import epoch_batches, make_batch, shifted
from foredraft.integration.train.features import Features
from foredraft.integration.train.pieces import Piece


def test_every_piece_once_and_within_the_size() -> None:
    lengths = [5 + place % 40 for place in range(300)]
    batches = epoch_batches(lengths, batch_tokens=200, seed=0, epoch=0)
    assert sorted(piece for batch in batches for piece in batch) == list(range(300))
    assert all(len(batch) * max(lengths[piece] for piece in batch) <= 200 for batch in batches)
    padded = sum(len(batch) * max(lengths[piece] for piece in batch) for batch in batches)
    assert padded < 1.1 * sum(lengths), "pieces of similar length belong together"


def test_the_order_hangs_on_seed_and_epoch_alone() -> None:
    lengths = [5 + place % 40 for place in range(100)]
    first = epoch_batches(lengths, 200, seed=0, epoch=1)
    assert epoch_batches(lengths, 200, seed=0, epoch=1) == first
    assert epoch_batches(lengths, 200, seed=0, epoch=2) != first
    assert epoch_batches(lengths, 200, seed=1, epoch=1) != first


def test_the_positions_that_count_lie_before_what_is_predicted() -> None:
    pieces = [Piece([1, 2, 3], loss_start=1, response_start=2, held_out=False)]
    pieces.append(Piece([4, 5, 6, 7, 8], loss_start=3, response_start=4, held_out=False))
    features = [
        Features(
            states=torch.tensor(piece.token_ids)[:, None].to(torch.bfloat16),
            log_normalisers=torch.tensor(piece.token_ids) * 10.0,
            argmax=torch.tensor(piece.token_ids, dtype=torch.int32) * 100,
        )
        for piece in pieces
    ]
    batch = make_batch(pieces, features, torch.device("cpu"), response_only=False)
    assert batch.token_ids.tolist() == [[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]]
    assert batch.places.tolist() == [0, 1, 7, 8]
    assert batch.target_states[:, 0].tolist() == [1, 2, 6, 7]
    assert batch.log_normalisers.tolist() == [10, 20, 60, 70]
    assert batch.argmax.tolist() == [100, 200, 600, 700]
    assert batch.state_inputs[1, :, 0].tolist() == [0, 4, 5, 6, 7]
    assert batch.num_tokens == 8
    response = make_batch(pieces, features, torch.device("cpu"), response_only=True)
    assert response.places.tolist() == [1, 8]


def test_shifted_states_are_those_of_the_position_before() -> None:
    states = torch.arange(6.0).view(1, 3, 2)
    assert shifted(states).tolist() == [[[0, 0], [0, 1], [2, 3]]]
