"""Two models draft for each other only if their token ids mean the same."""

from __future__ import annotations

from typing import Any

import pytest

from foredraft.integration.errors import UserError
from foredraft.integration.models.vocabulary import check_same_vocabulary


class Vocabulary:
    def __init__(self, *tokens: str) -> None:
        self._ids = {token: token_id for token_id, token in enumerate(tokens)}

    def get_vocab(self) -> dict[str, int]:
        return self._ids


ABC = Vocabulary("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        (ABC, Vocabulary("a", "b", "c", "d")),
        (ABC, Vocabulary("a", "b")),
        (Vocabulary("a", "b"), ABC),
        (None, None),
    ],
)
def test_same_meanings(target: Any, draft: Any) -> None:
    """Ids that only one of them has do not matter."""
    check_same_vocabulary(target, draft)


@pytest.mark.parametrize(
    ("target", "draft", "said"),
    [
        (ABC, Vocabulary("a", "c", "b", "d"), "token 1 is 'c' for the draft, 'b' for the target"),
        (ABC, Vocabulary("a", "b", "c", "x", "y"), "token 3 is 'x' for the draft, 'd' for the target"),
        (ABC, None, "the draft has no tokenizer"),
        (None, ABC, "the target has no tokenizer"),
    ],
)
def test_other_meanings_are_refused(target: Any, draft: Any, said: str) -> None:
    """F63: sizes alone would not tell."""
    with pytest.raises(UserError) as caught:
        check_same_vocabulary(target, draft)
    assert said in str(caught.value)
    assert str(caught.value).startswith("draft.model: ")
