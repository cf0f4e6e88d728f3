"""Do two models mean the same by their token ids?"""

from __future__ import annotations

from typing import Any

from foredraft.integration.errors import UserError


def check_same_vocabulary(target: Any | None, draft: Any | None) -> None:
    """Refuse a draft whose tokenizer gives an id another meaning. Ids that only one of them has are fine.

    Args:
        target, draft: tokenizers of transformers; ``None`` for a model without one.

    Raises:
        UserError: naming the first id that differs, or that one of the models has no tokenizer to compare.
    """
    if target is None and draft is None:
        return
    if target is None or draft is None:
        without = "the target" if target is None else "the draft"
        raise UserError(f"draft.model: {without} has no tokenizer, so the vocabularies cannot be compared")
    theirs, ours = _tokens_by_id(target), _tokens_by_id(draft)
    for token_id in sorted(theirs.keys() & ours.keys()):
        if theirs[token_id] != ours[token_id]:
            raise UserError(
                f"draft.model: its tokenizer is another one than the target's: token {token_id} is "
                f"{ours[token_id]!r} for the draft, {theirs[token_id]!r} for the target"
            )


def _tokens_by_id(tokenizer: Any) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}
