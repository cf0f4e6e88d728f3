"""The embedded engine on a device: speculation changes no token of a toy model in float32."""

import torch
from toys import TOY_VOCAB, ScriptedProposer, make_engine, oracle_of, random_prompts, run_tokens, toy_model

from foredraft.integration.embedded.decoder import SlotDecoder
from foredraft.integration.embedded.forward import prepare_model
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers.ngram import NgramProposer

PROMPTS = random_prompts(8)


def decoder_on(device: torch.device, num_rows: int) -> SlotDecoder:
    return SlotDecoder(prepare_model(toy_model().to(device)), num_rows, 128, 512, TOY_VOCAB)


def test_greedy_identity(device: torch.device) -> None:
    params = SamplingParams(temperature=0, max_tokens=16)
    plain = run_tokens(make_engine(decoder_on(device, 1)), PROMPTS, params)
    runs = [prompt + output for prompt, output in zip(PROMPTS, plain, strict=True)]
    for proposer in (NgramProposer(1, 3), ScriptedProposer(oracle_of(runs), num_right=2)):
        engine = make_engine(decoder_on(device, 4), proposer)
        assert run_tokens(engine, PROMPTS, params) == plain
        assert engine.metrics.num_accepted_tokens > 0


def test_seeded_identity(device: torch.device) -> None:
    params = [
        SamplingParams(temperature=1, top_p=0.9, seed=seed, max_tokens=16) for seed in range(len(PROMPTS))
    ]
    plain = run_tokens(make_engine(decoder_on(device, 1)), PROMPTS, params)
    assert run_tokens(make_engine(decoder_on(device, 4), NgramProposer(1, 3)), PROMPTS, params) == plain
