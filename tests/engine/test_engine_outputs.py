"""What a step returns: complete, true counts, and snapshots that stay as they were."""

from collections.abc import Callable
from copy import deepcopy

import pytest
from letters import TEXT, TEXT_VOCAB, TOKENIZER, text_decoder, token_ids
from toys import ScriptedProposer, make_engine, oracle_of

from foredraft.integration.embedded.engine import EmbeddedEngine
from foredraft.integration.engine import CompletionOutput, RequestOutput, SpeculationStats
from foredraft.integration.metrics import EngineMetrics
from foredraft.integration.sampling_params import SamplingParams
from foredraft.proposers import DraftContext, Proposer
from foredraft.verifier import Draft

MakeProposer = Callable[..., Proposer]
RUN = token_ids(TEXT * 3)
PROMPT = RUN[:3]
GREEDY = SamplingParams(temperature=0, max_tokens=21)


def engine_with(proposer: Proposer | None, width: int = 4) -> EmbeddedEngine:
    return make_engine(text_decoder(), proposer, width, tokenizer=TOKENIZER)


def oracle(num_right: int = 1_000, lengths: list[int] | None = None) -> ScriptedProposer:
    return ScriptedProposer(oracle_of([RUN]), TEXT_VOCAB, num_right=num_right, lengths=lengths)


def test_contents_of_an_output() -> None:
    engine = engine_with(oracle())
    engine.add_request("name", "abc", GREEDY)
    *_, last = engine.stream(["name"])
    stats = last.outputs[0].speculation
    assert last == RequestOutput(
        request_id="name",
        prompt_token_ids=PROMPT,
        outputs=[
            CompletionOutput(
                index=0,
                text=TOKENIZER.decode(RUN[3:24]),
                token_ids=RUN[3:24],
                finish_reason="length",
                speculation=stats,
            )
        ],
        finished=True,
    )
    assert stats == SpeculationStats(
        num_steps=5, num_drafts=4, num_drafted_tokens=16, num_accepted_tokens=16, num_emitted_tokens=21
    )


def test_a_request_is_returned_only_when_it_changed() -> None:
    """Prompt chunks and waiting change nothing that a user sees."""
    engine = make_engine(text_decoder(num_rows=1), prefill_chunk=2)
    engine.add_request("first", PROMPT, SamplingParams(temperature=0, max_tokens=2))
    engine.add_request("second", PROMPT, SamplingParams(temperature=0, max_tokens=1))
    seen = [[output.request_id for output in engine.step()] for _ in range(5)]
    assert seen == [[], ["first"], ["first"], [], ["second"]]
    assert engine.step() == []
    assert not engine.has_unfinished_requests()


def test_snapshots_do_not_change_later() -> None:
    """The list of prompt log-probabilities once went on growing inside outputs already handed out."""
    engine = make_engine(
        text_decoder(num_rows=2), oracle(lengths=[1, 2]), prefill_chunk=2, tokenizer=TOKENIZER
    )
    params = SamplingParams(n=2, temperature=0, max_tokens=8, logprobs=1, prompt_logprobs=1)
    engine.add_request("long", RUN[:9], params)
    outputs, copies = [], []
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs.append(output)
            copies.append(deepcopy(output))
    assert len(outputs) > 4
    assert outputs == copies


def test_what_a_user_does_to_an_output_stays_with_it() -> None:
    engine = engine_with(None)
    engine.add_request("r", PROMPT, SamplingParams(temperature=0, max_tokens=6, repetition_penalty=1.01))
    (output,) = engine.step()
    output.prompt_token_ids.clear()
    output.outputs[0].token_ids.clear()
    *_, last = engine.stream(["r"])
    assert last.prompt_token_ids == PROMPT
    assert last.outputs[0].token_ids == RUN[3:9]


def test_a_snapshot_of_a_running_prompt_does_not_grow() -> None:
    """Its list of prompt log-probabilities was the one that later chunks are added to."""
    engine = make_engine(text_decoder(), prefill_chunk=4)
    engine.add_request("r", RUN[:12], SamplingParams(n=2, max_tokens=2, prompt_logprobs=0))
    engine.step()
    snapshot = engine._requests["r"].as_output()
    before = list(snapshot.prompt_logprobs or ())
    engine.step()
    assert snapshot.prompt_logprobs == before


# ---- counts


@pytest.mark.parametrize("width", [1, 4])
def test_an_oracle_is_accepted_whole(width: int) -> None:
    """F147: accepted / drafted is 1 exactly; the bonus token does not count."""
    engine = engine_with(oracle(), width)
    (request,) = engine.generate([PROMPT], GREEDY)
    stats = request.outputs[0].speculation
    assert stats.acceptance_rate == 1.0
    assert stats.acceptance_length == 21 / stats.num_steps
    assert stats.num_emitted_tokens == 21


def test_without_drafts_there_is_no_rate() -> None:
    """F149: "no data", not nan and not an exception; also on a request that has not begun."""
    fresh = SpeculationStats()
    assert (fresh.acceptance_rate, fresh.acceptance_length) == (None, None)
    (request,) = engine_with(oracle(lengths=[0])).generate([PROMPT], GREEDY)
    stats = request.outputs[0].speculation
    assert (stats.acceptance_rate, stats.acceptance_length) == (None, 1.0)
    assert (stats.num_drafts, stats.num_drafted_tokens) == (0, 0)


class EveryOther(ScriptedProposer):
    """Has something to say in every second step, and counts what it really drafted."""

    def __init__(self) -> None:
        super().__init__(oracle_of([RUN]), TEXT_VOCAB, num_right=2)
        self.calls, self.num_drafted = 0, 0

    def propose(self, context: DraftContext) -> Draft:
        self.calls += 1
        draft = super().propose(context)
        if self.calls % 2:
            draft = Draft.from_lists([[] for _ in context.request_ids])
        self.num_drafted += int(draft.lengths.sum())
        return draft


def test_counts_are_those_of_real_drafts() -> None:
    """F151: half the steps without a draft, the last one short, 2 of 4 right; not steps times maximum."""
    proposer = EveryOther()
    engine = engine_with(proposer)
    (request,) = engine.generate([PROMPT], GREEDY)
    stats = request.outputs[0].speculation
    assert stats.num_drafted_tokens == proposer.num_drafted < 4 * stats.num_steps
    assert stats.num_drafts == sum(outcome.num_drafted > 0 for outcome in proposer.outcomes)
    assert stats.num_accepted_tokens == sum(outcome.num_accepted for outcome in proposer.outcomes)
    assert stats.num_emitted_tokens == stats.num_steps + stats.num_accepted_tokens


def test_outcomes_tell_the_proposer_what_happened() -> None:
    """Committed tokens follow one another without gaps; the end of the request cuts the last block."""
    proposer = oracle(num_right=2)
    engine = engine_with(proposer)
    params = SamplingParams(temperature=0, max_tokens=50, stop_token_ids=[RUN[10]])
    (request,) = engine.generate([PROMPT], params)
    tokens = list(PROMPT)
    for outcome in proposer.outcomes:
        assert outcome.block_start == len(tokens)
        assert outcome.num_drafted == outcome.num_verified
        assert 0 <= outcome.num_accepted <= min(2, outcome.num_verified, len(outcome.committed_ids))
        tokens += outcome.committed_ids
    assert tokens == RUN[:11] == PROMPT + request.outputs[0].token_ids


def test_engine_counts_add_up_over_requests(draft_kind: str, make_proposer: MakeProposer) -> None:
    """F153: the engine's figures are the sums of what requests report and users get."""
    engine = engine_with(make_proposer(draft_kind, [RUN], TEXT_VOCAB))
    params = [GREEDY.model_copy(update={"max_tokens": length, "n": 2}) for length in (1, 5, 21)]
    requests = engine.generate([PROMPT] * 3, params)
    each = [one.speculation for request in requests for one in request.outputs]
    metrics = engine.metrics
    assert metrics.num_emitted_tokens == sum(
        len(one.token_ids) for request in requests for one in request.outputs
    )
    for name in ("num_emitted_tokens", "num_drafted_tokens", "num_accepted_tokens"):
        assert getattr(metrics, name) == sum(getattr(stats, name) for stats in each)
    assert sum(metrics.verified_per_position) == metrics.num_drafted_tokens
    assert sum(metrics.accepted_per_position) == metrics.num_accepted_tokens
    assert metrics.verified_per_position == sorted(metrics.verified_per_position, reverse=True)


def test_acceptance_per_position() -> None:
    engine = engine_with(oracle(num_right=2))
    engine.generate([PROMPT], SamplingParams(temperature=0, max_tokens=10))
    assert engine.metrics.accepted_per_position[:2] == engine.metrics.verified_per_position[:2]
    assert set(engine.metrics.accepted_per_position[2:]) == {0}


def test_times_of_the_phases_are_parts_of_the_total() -> None:
    engine = engine_with(oracle())
    assert engine.metrics == EngineMetrics()
    engine.generate([PROMPT], GREEDY)
    seconds = dict(engine.metrics.seconds)
    total = seconds.pop("total")
    assert all(0 < part < total for part in seconds.values())
    assert sum(seconds.values()) <= total


def test_stream_follows_the_requests_asked_for() -> None:
    engine = engine_with(oracle())
    engine.add_request("a", PROMPT, GREEDY)
    engine.add_request("b", PROMPT, SamplingParams(temperature=0, max_tokens=2))
    assert {output.request_id for output in engine.stream(["b"])} == {"b"}
    assert engine.has_unfinished_requests()
    *_, last = engine.stream(["a"])
    assert last.finished
    assert list(engine.stream(["a"])) == []


def test_generate_returns_outputs_in_order_of_the_prompts() -> None:
    """Though the later ones finish first."""
    params = [SamplingParams(temperature=0, max_tokens=length) for length in (9, 5, 1)]
    requests = engine_with(oracle()).generate([RUN[:1], RUN[:2], "abc"], params)
    assert [request.prompt_token_ids for request in requests] == [RUN[:1], RUN[:2], RUN[:3]]
    assert [len(request.outputs[0].token_ids) for request in requests] == [9, 5, 1]
