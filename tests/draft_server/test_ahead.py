"""What was drafted ahead is used where its assumption came true; else it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from draft_service import card_of, hosted_draft
from toys import toy_model

from foredraft.integration.embedded.forward import prepare_model
from foredraft.proposers.remote_messages import DraftAnswer, DraftRequest, RequestSampling, RequestUpdate
from foredraft.scheduler.draft_server import DraftServer, DraftServerOptions

PREPARED = prepare_model(toy_model(2))
PROMPT = (5, 6, 7)


def make_server() -> DraftServer:
    server = DraftServer(hosted_draft(PREPARED), DraftServerOptions(gather_ms=0.0))
    server.hello(card_of("target", ahead="on"))
    return server


def ask(server: DraftServer, step: int, start: int, tokens: Sequence[int], wanted: int = 3) -> DraftAnswer:
    """The answer, after which the server has had time to draft ahead."""
    sampling = RequestSampling(1) if start == 0 else None
    update = RequestUpdate(1, start, tuple(tokens), wanted, sampling)
    future = server.submit(DraftRequest("target", step, 10.0, [update]))
    while server.step():
        pass
    return future.result(0)


def drafted_afresh(tokens: Sequence[int], wanted: int = 3) -> Sequence[int]:
    return ask(make_server(), 1, 0, tokens, wanted).token_ids[1]


def assumed_after_prompt() -> tuple[int, ...]:
    """The first draft, and the bonus token that is guessed after it."""
    return tuple(drafted_afresh(PROMPT, 4))


def test_an_assumption_that_comes_true_is_answered_without_drafting() -> None:
    server = make_server()
    ask(server, 1, 0, PROMPT)
    batches = server.counts.num_batches
    answer = ask(server, 2, 3, assumed_after_prompt())
    assert (server.counts.num_batches, server.counts.num_ahead_hits) == (batches, 1)
    assert answer.token_ids[1] == drafted_afresh(PROMPT + assumed_after_prompt())


@pytest.mark.parametrize("num_right", range(4))
@pytest.mark.parametrize("num_more", [1, 2, 4])
def test_of_a_wrong_assumption_nothing_is_left(num_right: int, num_more: int) -> None:
    """Also where the target went on for several steps without the server, past what was assumed."""
    right = assumed_after_prompt()[:num_right]
    wrong = [(assumed_after_prompt()[num_right] + 1 + more) % 97 for more in range(num_more)]
    server = make_server()
    ask(server, 1, 0, PROMPT)
    answer = ask(server, 2, 3, (*right, *wrong))
    assert server.counts.num_ahead_misses == 1
    assert answer.token_ids[1] == drafted_afresh((*PROMPT, *right, *wrong))


def test_a_ready_draft_is_cut_to_what_is_wanted() -> None:
    server = make_server()
    ask(server, 1, 0, PROMPT)
    answer = ask(server, 2, 3, assumed_after_prompt(), wanted=1)
    assert answer.token_ids[1] == drafted_afresh(PROMPT + assumed_after_prompt())[:1]
    after = (*PROMPT, *assumed_after_prompt(), 9)
    assert ask(server, 3, len(after) - 1, after[-1:]).token_ids[1] == drafted_afresh(after)
