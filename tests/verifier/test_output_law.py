"""The law of whole sequences, from the real sampler: chi-square against the exact law.

100 000 requests of several blocks each, fixed seeds; a sampler is flagged at p < 1e-6, or at once when a
token of target probability 0 appears. The same test must flag samplers known to be wrong.
"""

from dataclasses import replace

import pytest
import torch

from foredraft.verifier import Draft, DraftProbs, drawn, random

ALARM = 1e-6
FORMS = ("point_mass", "dense", "shared_sparse", "sparse_per_position", "mixed")
SAMPLING = {
    "temperature": {"temperature": 0.5},
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.8},
    "min_p": {"min_p": 0.25},
    "all": {"temperature": 1.5, "min_p": 0.1, "top_k": 3, "top_p": 0.9},
}
CONTROLS = {
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.5},
    "bias": {"logit_bias": {1: 1.5, 2: -1.0}},
    "bans": {"bad_words": [[2, 1], [3]], "min_tokens": 2, "stop_token_ids": [0]},
}


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_draft_keeps_the_target_law(world, drafters, form, rule):
    world = replace(world, rule=rule, num_draft_tokens=3)
    assert world.p_value(world.run(getattr(drafters, form)(world))) > ALARM


@pytest.mark.parametrize("form", ["point_mass", "dense", "mixed"])
@pytest.mark.parametrize("name", SAMPLING)
def test_truncated_laws_are_kept(world, drafters, name, form):
    """The target is judged by its processed law at every position, bonus included (F11, F17, F21)."""
    world = replace(world, sampling=SAMPLING[name])
    assert world.p_value(world.run(getattr(drafters, form)(world))) > ALARM


@pytest.mark.parametrize("form", ["point_mass", "dense"])
@pytest.mark.parametrize("name", CONTROLS)
def test_controls_count_the_drafted_prefix(world, drafters, name, form):
    """The drafter knows nothing of the controls, the output law is the controlled one (F29, F31, F33, F35).

    10 000 draws, because controls are edited in request by request; ``test_controls`` compares them exactly.
    """
    world = replace(world, controls=CONTROLS[name], length=3, num_draws=10_000)
    assert world.p_value(world.run(getattr(drafters, form)(world))) > ALARM


def is_flagged(world, propose):
    return world.p_value(world.run(propose)) < ALARM


@pytest.mark.parametrize("rule", ["block", "token"])
def test_flags_recovery_from_the_target_instead_of_the_residual(world, drafters, rule, monkeypatch):
    honest = drawn.residual

    def from_target(rows, chosen, offset, scale):
        return rows.target_probs[rows.first_row[chosen] + offset].clone()

    def last_token(rows, accepted, scale):
        monkeypatch.setattr(drawn, "residual", from_target)
        token = honest_last(rows, accepted, scale)
        monkeypatch.setattr(drawn, "residual", honest)
        return token

    honest_last = drawn._last_token
    monkeypatch.setattr(drawn, "_last_token", last_token)
    world = replace(world, rule=rule)
    assert is_flagged(world, drafters.dense(world))


@pytest.mark.parametrize("rule", ["block", "token"])
def test_flags_greedy_draft_reported_as_softmax(world, chain, rule):
    world = replace(world, rule=rule)

    def propose(last, batch):
        tokens, laws = chain(world, last, batch, lambda law, _: law.argmax(1))
        return Draft(tokens, torch.full((len(last),), 2), DraftProbs(torch.arange(len(last)), laws))

    assert is_flagged(world, propose)


@pytest.mark.parametrize("rule", ["block", "token"])
@pytest.mark.parametrize(("drawn_at", "top_k"), [(0.6, 0), (1.0, 2)])
def test_flags_draft_drawn_from_another_law_than_reported(world, drafters, rule, drawn_at, top_k):
    """Drawn at another temperature, or under another top-k, than reported."""
    world = replace(world, rule=rule)
    honest = drafters.dense(world)

    def propose(last, batch):
        other = replace(
            batch,
            temperature=torch.full_like(batch.temperature, drawn_at),
            top_k=torch.full_like(batch.top_k, top_k),
        )
        tokens = honest(last, other).token_ids
        before = torch.cat((last[:, None], tokens[:, :-1]), dim=1)
        probs = DraftProbs(torch.arange(len(last)), world.draft[before].softmax(-1))
        return Draft(tokens, torch.full((len(last),), 2), probs)

    assert is_flagged(world, propose)


def test_flags_noise_keyed_by_position_under_the_block_rule(drafters, world, monkeypatch):
    """The rejected tail's noise has already shaped the accepted length, so it must not come back."""
    honest = random.uniforms

    def by_position(request_keys, positions, offsets, purpose, count):
        return honest(request_keys, positions + offsets, torch.zeros_like(offsets), purpose, count)

    two_tokens = torch.tensor([[1 / 3, 2 / 3]]).log().expand(2, -1)
    world = replace(world, target=two_tokens, draft=two_tokens.flip(1))
    assert world.p_value(world.run(drafters.dense(world))) > ALARM
    monkeypatch.setattr("foredraft.verifier.drawn.uniforms", by_position)
    monkeypatch.setattr("foredraft.verifier.choice.uniforms", by_position)
    assert is_flagged(world, drafters.dense(world))
