"""Several proposers at once: who is asked, and how their drafts are put together."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from contexts import make_context
from drawing import DrawingProposer
from toys import ScriptedProposer

from foredraft.proposers import DraftContext, Proposer
from foredraft.proposers.auto import AutoProposer
from foredraft.proposers.base import Outcome
from foredraft.proposers.ngram import NgramProposer
from foredraft.verifier import Draft
from foredraft.verifier.reference import _dense_draft_probs

TABLE = torch.randn(8, 8, generator=torch.Generator().manual_seed(3))
OTHER = torch.randn(8, 8, generator=torch.Generator().manual_seed(4))
ROWS: dict[str, Sequence[int]] = {"a": [1, 2], "b": [3], "c": [4, 5, 6], "d": [7]}


def context(members: Sequence[int], limits: Sequence[int] = (3, 2, 3, 1)) -> DraftContext:
    return replace(make_context(ROWS, limits), members=members)


class Constant(Proposer):
    """Drafts one token over and over, and notes whom it was asked for."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.asked: list[list[int]] = []
        self.outcomes: list[Outcome] = []
        self.released: list[str] = []

    def propose(self, context: DraftContext) -> Draft:
        self.asked.append(list(context.max_draft_tokens))
        return Draft.from_lists([[self.token] * limit for limit in context.max_draft_tokens])

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes

    def release(self, request_id: str, reason: object) -> None:
        self.released.append(request_id)


def test_each_request_is_drafted_for_by_its_member_alone() -> None:
    one, two = Constant(1), Constant(2)
    draft = AutoProposer({"one": one, "two": two}).propose(context([0, 1, 1, 0]))
    assert draft.token_ids.tolist() == [[1, 1, 1], [2, 2, -1], [2, 2, 2], [1, -1, -1]]
    assert draft.lengths.tolist() == [3, 2, 3, 1]
    assert one.asked == [[3, 0, 0, 1]]
    assert two.asked == [[0, 2, 3, 0]]


def test_a_member_without_requests_is_not_called() -> None:
    one, two = Constant(1), Constant(2)
    auto = AutoProposer({"one": one, "two": two})
    assert auto.propose(context([1, 1, 0, 1], [2, 2, 0, 2])).lengths.tolist() == [2, 2, 0, 2]
    assert one.asked == []
    assert auto.seconds[0] == 0.0
    assert auto.seconds[1] > 0.0


def test_without_members_named_the_first_drafts() -> None:
    one, two = Constant(1), Constant(2)
    assert AutoProposer({"one": one, "two": two}).propose(context([])).token_ids[:, 0].tolist() == [1] * 4


def test_all_members_are_told_what_became_of_requests() -> None:
    one, two = Constant(1), Constant(2)
    auto = AutoProposer({"one": one, "two": two})
    outcome = Outcome("a", 2, 1, 1, 1, (1, 5))
    auto.observe([outcome])
    auto.release("a", "finished")
    assert one.outcomes == two.outcomes == [outcome]
    assert one.released == two.released == ["a"]


FORMS = {
    "dense": lambda: DrawingProposer(OTHER, "dense"),
    "sparse": lambda: DrawingProposer(OTHER, "sparse", top_k=3),
    "shared": lambda: DrawingProposer(OTHER, "shared"),
    "mixed": lambda: DrawingProposer(OTHER, "mixed"),
    "point": lambda: NgramProposer(1, 2),
    "scripted": lambda: ScriptedProposer(lambda tokens: [1, 2, 3], vocab_size=8),
}


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
@pytest.mark.parametrize("members", [[0, 1, 0, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
def test_tokens_and_laws_are_those_of_the_owner(first: str, second: str, members: list[int]) -> None:
    merged = AutoProposer({"one": FORMS[first](), "two": FORMS[second]()}).propose(context(members))
    for member, form in enumerate((first, second)):
        limits = [limit if own == member else 0 for limit, own in zip((3, 2, 3, 1), members, strict=True)]
        if not any(limits):
            continue
        alone = FORMS[form]().propose(make_context(ROWS, limits))
        for row in [row for row, own in enumerate(members) if own == member]:
            length = int(alone.lengths[row])
            assert merged.lengths[row] == length
            assert merged.token_ids[row, :length].tolist() == alone.token_ids[row, :length].tolist()
            expected = _dense_draft_probs(alone.probs, row, length, 8)
            law = _dense_draft_probs(merged.probs, row, length, 8)
            assert (law is None) == (expected is None)
            if law is not None and expected is not None:
                assert torch.equal(law, expected)


def test_no_member_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one member"):
        AutoProposer({})


# ---- prospects


def test_ngram_says_how_long_its_match_is() -> None:
    proposer = NgramProposer(1, 3)
    rows = {"long": [1, 2, 3, 9, 1, 2, 3], "short": [5, 3, 6, 3], "none": [1, 2, 3]}
    assert proposer.num_prospects == 3
    assert list(proposer.prospects(list(rows), list(rows.values()))) == [3, 1, 0]
    drafted = proposer.propose(make_context(rows, [2, 2, 2]))
    assert drafted.token_ids.tolist() == [[9, 1], [6, 3], [-1, -1]]


def test_prospects_change_no_draft() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 4, (60,), generator=generator).tolist()
    asked, unasked = NgramProposer(1, 4), NgramProposer(1, 4)
    for end in range(2, 60):
        rows = {"a": tokens[:end]}
        if end % 3:
            asked.prospects(["a"], [tokens[:end]])
        if end % 2:
            ours, theirs = (one.propose(make_context(rows, [3])) for one in (asked, unasked))
            assert ours.token_ids.tolist() == theirs.token_ids.tolist()


def test_others_outputs_are_the_last_kind() -> None:
    proposer = NgramProposer(1, 2, shared_store_tokens=100)
    assert proposer.num_prospects == 3
    proposer.propose(make_context({"a": [1]}, [1]))
    proposer.observe([Outcome("a", 1, 0, 0, 0, (2, 3, 4, 5))])
    proposer.release("a", "finished")
    assert list(proposer.prospects(["b"], [[7, 2, 3]])) == [3]
    proposer.release("b", "finished")
    assert not proposer._found
