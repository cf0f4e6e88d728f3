"""Text as it comes equals the text of all tokens at once."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from letters import TOKENIZER
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from foredraft.integration.embedded.detokenizer import INCOMPLETE, Detokenizer

BYTE_TOKENS = {byte: TOKENIZER.convert_tokens_to_ids(letter) for byte, letter in bytes_to_unicode().items()}
END = TOKENIZER.eos_token_id
TEXTS = st.text(st.sampled_from("ab é€😀\n"), max_size=12).map(str.encode)
ANY_BYTES = st.lists(st.one_of(st.binary(max_size=6), TEXTS), max_size=4).map(b"".join)
SIZES = st.lists(st.integers(0, 5), max_size=12)


def ids_of(data: bytes) -> list[int]:
    """One token per byte, valid text or not."""
    return [BYTE_TOKENS[byte] for byte in data]


def pushed(ids: Sequence[int], sizes: Sequence[int], skip_special_tokens: bool = True) -> list[str]:
    """The text of each push, ``sizes`` tokens at a time, and last of the flush."""
    detokenizer = Detokenizer(TOKENIZER, skip_special_tokens)
    pieces, begin = [], 0
    for size in [*sizes, len(ids)]:
        pieces.append(detokenizer.push(ids[begin : begin + size]))
        begin += size
    return [*pieces, detokenizer.flush()]


@given(ANY_BYTES, SIZES)
def test_pieces_add_up(data: bytes, sizes: list[int]) -> None:
    ids = ids_of(data)
    assert "".join(pushed(ids, sizes)) == TOKENIZER.decode(ids)


@given(TEXTS, SIZES, st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_pieces_add_up_with_special_tokens(
    data: bytes, sizes: list[int], ends: list[int], skip: bool
) -> None:
    ids = ids_of(data)
    for place in ends:
        ids.insert(place, END)
    assert "".join(pushed(ids, sizes, skip)) == TOKENIZER.decode(ids, skip_special_tokens=skip)


@given(TEXTS, SIZES)
def test_no_piece_shows_half_a_character(data: bytes, sizes: list[int]) -> None:
    *pieces, rest = pushed(ids_of(data), sizes)
    assert INCOMPLETE not in "".join(pieces)
    assert rest == ""


def test_text_before_half_a_character_does_not_wait() -> None:
    """It once did, so that a stop text in it was noticed too late."""
    detokenizer = Detokenizer(TOKENIZER, skip_special_tokens=True)
    assert detokenizer.push(ids_of("ab€".encode()[:-1])) == "ab"
    assert detokenizer.push(ids_of("€".encode()[-1:])) == "€"


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_half_a_character_at_the_end_becomes_a_replacement(cut: int) -> None:
    data = "a😀".encode()[:-cut]
    assert pushed(ids_of(data), [1, 1, 1])[-1] == INCOMPLETE


@given(st.lists(st.integers(0, 3), max_size=10), SIZES)
def test_spaces_that_a_token_loses_when_decoded_alone(ids: list[int], sizes: list[int]) -> None:
    """Word tokenizers drop the space of the first token they decode; special tokens do not count as one."""
    words = Tokenizer(models.WordLevel({"▁new": 0, "▁york": 1, "er": 2, "<s>": 3}, unk_token="<s>"))
    words.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")
    detokenizer, pieces, begin = Detokenizer(tokenizer, skip_special_tokens=True), [], 0
    for size in [*sizes, len(ids)]:
        pieces.append(detokenizer.push(ids[begin : begin + size]))
        begin += size
    assert "".join(pieces) + detokenizer.flush() == tokenizer.decode(ids, skip_special_tokens=True)
