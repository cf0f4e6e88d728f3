"""Every control that edits logits against a plain computation per position (F29, F31, F33, F35)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.verifier import Draft, SamplingBatch, TokenControls, verify
from foredraft.verifier.controls import process_logits
from foredraft.verifier.rows import Layout

VOCAB_SIZE = 7
TOKENS = st.integers(0, VOCAB_SIZE - 1)
CONTROLS = st.builds(
    TokenControls,
    prompt_ids=st.lists(TOKENS, max_size=4),
    output_ids=st.lists(TOKENS, max_size=4),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.7]),
    presence_penalty=st.sampled_from([0.0, -1.0, 2.0]),
    frequency_penalty=st.sampled_from([0.0, -0.5, 1.5]),
    logit_bias=st.dictionaries(TOKENS, st.sampled_from([-100.0, -1.0, 3.0]), max_size=2),
    allowed_token_ids=st.none() | st.lists(TOKENS, min_size=1),
    bad_words=st.lists(st.lists(TOKENS, min_size=1, max_size=3), max_size=4),
    min_tokens=st.integers(0, 8),
    stop_token_ids=st.lists(TOKENS, max_size=2),
)


def sampling_of(size, **fields):
    zeros = torch.zeros(size, dtype=torch.int64)
    return SamplingBatch(torch.zeros(size), zeros, zeros, **fields)


def processed(logits, draft, sampling):
    return process_logits(logits, draft, sampling, Layout.of(draft.lengths, len(logits)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    batch=st.lists(st.tuples(st.none() | CONTROLS, st.lists(TOKENS, max_size=3)), min_size=1, max_size=4),
    masked=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_equals_the_plain_computation(edited_logits, batch, masked, seed):
    generator = torch.Generator().manual_seed(seed)
    draft = Draft.from_lists([drafted for _, drafted in batch])
    logits = torch.randn(int((draft.lengths + 1).sum()), VOCAB_SIZE, generator=generator) * 3
    mask = torch.rand(logits.shape, generator=generator) < 0.8 if masked else None
    before = logits.clone()
    sampling = sampling_of(len(batch), controls=[controls for controls, _ in batch], allowed_mask=mask)
    result, row = processed(logits, draft, sampling), 0
    assert torch.equal(logits, before)
    for controls, drafted in batch:
        for pos in range(len(drafted) + 1):
            expected = edited_logits(logits[row].tolist(), controls or TokenControls(), drafted[:pos])
            expected = torch.tensor(expected)
            if mask is not None:
                expected[~mask[row]] = -math.inf
            assert torch.allclose(result[row], expected, atol=1e-5)
            row += 1


def test_nothing_is_copied_where_nothing_changes():
    logits, draft = torch.randn(3, 5), Draft.from_lists([[1], []])
    assert processed(logits, draft, sampling_of(2)) is logits
    assert processed(logits, draft, sampling_of(2, controls=[None, None])) is logits
    assert processed(logits.bfloat16(), draft, sampling_of(2)).dtype == torch.float32


def greedy(logits, drafted, **controls):
    sampling = sampling_of(1, controls=[TokenControls(**controls)])
    verdict = verify(logits.expand(len(drafted) + 1, -1), Draft.from_lists([drafted]), sampling)
    return [token for token in verdict.token_ids[0].tolist() if token >= 0]


LIKES_2 = torch.tensor([0.0, 1.0, 2.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("controls", "expected"),
    [
        ({}, [2, 2, 2, 2]),
        ({"frequency_penalty": 0.6}, [2, 2, 1]),
        ({"frequency_penalty": -2.0}, [2, 2, 2, 2]),
        ({"presence_penalty": 1.5}, [2, 1]),
        ({"repetition_penalty": 3.0}, [2, 1]),
        ({"repetition_penalty": 3.0, "prompt_ids": [2]}, [1]),
        ({"bad_words": [[2]]}, [1]),
        ({"bad_words": [[2, 2]]}, [2, 1]),
        ({"bad_words": [[2, 2]], "output_ids": [2]}, [1]),
        ({"bad_words": [[2, 2]], "prompt_ids": [2]}, [2, 1]),
        ({"bad_words": [[0, 1, 2]], "output_ids": [0, 1]}, [1]),
        ({"allowed_token_ids": [1, 3]}, [1]),
        ({"logit_bias": {3: 100.0}}, [3]),
        ({"min_tokens": 2, "stop_token_ids": [2]}, [1]),
        ({"min_tokens": 2, "stop_token_ids": [2], "output_ids": [0, 0]}, [2, 2, 2, 2]),
    ],
)
def test_an_oracle_draft_made_without_the_control_is_cut_by_it(controls, expected):
    """The draft 2, 2, 2 is what the target likes; the last token shows who took over."""
    assert greedy(LIKES_2, [2, 2, 2], **controls) == expected


def test_stop_tokens_open_up_inside_the_block():
    """min_tokens ends at the second of the verified positions."""
    controls = {"min_tokens": 2, "stop_token_ids": [2], "output_ids": [0]}
    assert greedy(LIKES_2, [1, 2, 2], **controls) == [1, 2, 2, 2]
