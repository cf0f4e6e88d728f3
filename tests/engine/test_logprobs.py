"""Log-probabilities do not depend on speculation, and are those of the model itself (F47, F49, F51)."""

import math
from collections.abc import Callable

import pytest
import torch
from toys import make_engine, random_prompts, toy_decoder, toy_model

from foredraft.integration.engine import PositionLogprobs, RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.ngram import NgramProposer

MakeProposer = Callable[..., Proposer]
PROMPTS = random_prompts(3, seed=7)
WANTED = [SamplingParams(temperature=0, max_tokens=16, logprobs=n, prompt_logprobs=n) for n in (0, 1, 5)]


@pytest.fixture(scope="module")
def plain() -> list[RequestOutput]:
    return make_engine(toy_decoder(num_rows=1)).generate(PROMPTS, WANTED)


@pytest.fixture(scope="module")
def exact(plain: list[RequestOutput]) -> list[torch.Tensor]:
    """Log-probabilities by one forward pass of transformers over prompt and output, [T, V] each."""
    model = toy_model()
    runs = [request.prompt_token_ids + request.outputs[0].token_ids for request in plain]
    return [model(torch.tensor([run])).logits[0].log_softmax(-1) for run in runs]


def check(entries: list[PositionLogprobs], token_ids: list[int], rows: torch.Tensor, num_top: int) -> None:
    """The emitted token and the ``num_top`` likeliest ones, each with value and rank."""
    assert len(entries) == len(token_ids)
    for entry, token, row in zip(entries, token_ids, rows, strict=False):
        assert set(entry) == {token, *row.topk(num_top).indices.tolist()}
        for chosen, got in entry.items():
            assert math.isclose(got.logprob, float(row[chosen]), abs_tol=1e-5)
            assert got.rank == int((row >= row[chosen]).sum())


@pytest.mark.parametrize("chunk", [5, 256])
@pytest.mark.parametrize("speculates", [True, False])
def test_values_equal_a_direct_forward(
    plain: list[RequestOutput],
    exact: list[torch.Tensor],
    draft_kind: str,
    speculates: bool,
    chunk: int,
    make_proposer: MakeProposer,
) -> None:
    """0, 1 and 5 log-probabilities in one batch; prompts in one piece and in chunks; drafts stay on."""
    runs = [request.prompt_token_ids + request.outputs[0].token_ids for request in plain]
    proposer = make_proposer(draft_kind, runs) if speculates else None
    engine = make_engine(toy_decoder(num_rows=3), proposer, prefill_chunk=chunk)
    for request, params, rows in zip(engine.generate(PROMPTS, WANTED), WANTED, exact, strict=True):
        output, prompt_len = request.outputs[0], len(request.prompt_token_ids)
        num_top = params.logprobs or 0
        check(output.logprobs or [], output.token_ids, rows[prompt_len - 1 :], num_top)
        first, *others = request.prompt_logprobs or []
        assert first is None
        check([one for one in others if one], request.prompt_token_ids[1:], rows, num_top)
        if speculates:
            assert output.speculation.num_drafted_tokens > 0


def test_sampled_tokens_have_raw_logprobs() -> None:
    """Temperature and top-k shape what is drawn, not what is reported."""
    params = SamplingParams(seed=1, temperature=3.0, top_k=5, max_tokens=12, logprobs=1)
    (request,) = make_engine(toy_decoder(), NgramProposer(1, 3)).generate(PROMPTS[:1], params)
    output = request.outputs[0]
    rows = toy_model()(torch.tensor([PROMPTS[0] + output.token_ids])).logits[0].log_softmax(-1)
    check(output.logprobs or [], output.token_ids, rows[len(PROMPTS[0]) - 1 :], 1)


def test_none_unless_asked_for() -> None:
    (request,) = make_engine(toy_decoder()).generate(PROMPTS[:1], SamplingParams(max_tokens=4))
    assert request.prompt_logprobs is None
    assert request.outputs[0].logprobs is None


def test_a_stop_inside_a_block_cuts_the_logprobs_too(plain: list[RequestOutput]) -> None:
    run = plain[2].outputs[0].token_ids
    params = WANTED[2].model_copy(update={"stop_token_ids": [run[4]]})
    (request,) = make_engine(toy_decoder(), NgramProposer(1, 3)).generate(PROMPTS[2:], params)
    output = request.outputs[0]
    assert output.logprobs is not None
    assert len(output.logprobs) == len(output.token_ids) == run.index(run[4]) + 1
