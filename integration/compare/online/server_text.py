"""What servers write, made fit to be shown and kept."""

from __future__ import annotations


def whole_letters(text: str) -> str:
    """The text with halves of a letter joined, which two events may bring; a half alone becomes a mark.

    JSON can hold such halves (lone surrogates), a file in UTF-8 cannot.
    """
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


def printable(text: str) -> str:
    """The text without what a terminal would obey; a space stands for each such letter."""
    return "".join(letter if letter.isprintable() else " " for letter in whole_letters(text)).strip()
