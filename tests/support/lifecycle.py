"""Engines over the toy model for tests of how requests come and go; nothing of them may be left."""

from __future__ import annotations

from collections.abc import Sequence

from toys import ScriptedProposer, make_engine, random_prompts, toy_decoder

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import RequestOutput
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import Proposer
from foredraft.proposers.ngram import NgramProposer

GREEDY = SamplingParams(temperature=0, max_tokens=16)
PROMPTS = random_prompts(4, seed=9, longest=12)


def engine_with(proposer: Proposer | None, num_rows: int = 4, **options: object) -> EmbeddedEngine:
    return make_engine(toy_decoder(num_rows=num_rows, num_layers=2), proposer, **options)


def finish(engine: EmbeddedEngine) -> dict[str, RequestOutput]:
    """Step until idle; the last output of each request."""
    outputs = {}
    while engine.has_unfinished_requests():
        outputs |= {output.request_id: output for output in engine.step()}
    return outputs


def serve_joining_and_leaving(
    engine: EmbeddedEngine, prompts: Sequence[Sequence[int]], params: SamplingParams
) -> list[list[int]]:
    """Tokens of each prompt; one request joins every other step.

    Some are aborted half-way and submitted again under their old id, as after a preemption.
    """
    outputs = {}
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, params)
        for _ in range(2):
            outputs |= {output.request_id: output for output in engine.step()}
        victim = str(number // 2)
        if number % 3 == 2 and not outputs[victim].finished:
            engine.abort(victim)
            outputs |= {output.request_id: output for output in engine.step()}
            engine.add_request(victim, prompts[number // 2], params)
    outputs |= finish(engine)
    return [outputs[str(number)].outputs[0].token_ids for number in range(len(prompts))]


def assert_nothing_left(engine: EmbeddedEngine) -> None:
    """No row, sequence or request, and no state of a proposer that shows its own."""
    assert sorted(engine._free_rows) == list(range(engine.decoder.num_rows))
    for left in (engine._running, engine._waiting, engine._owners, engine._requests, engine._changed):
        assert not left
    if isinstance(engine.proposer, ScriptedProposer):
        assert engine.proposer.live == set()
    if isinstance(engine.proposer, NgramProposer):
        assert not engine.proposer._indexes
        assert not len(engine.proposer._outputs)
