"""Engines over the toy model for tests of how requests come and go; nothing of them may be left."""

from __future__ import annotations

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
