"""HTML and SVG elements as text, with everything that comes from outside escaped."""

from __future__ import annotations

from html import escape

VOID = frozenset({"meta", "br", "line", "rect", "circle", "path", "polyline"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str | Markup, **attributes: str | float | None) -> Markup:
    """An element; plain texts among ``children`` are escaped.

    Attribute names: a trailing underscore is dropped (``class_``), others become hyphens. Numbers are cut to
    two decimals, and attributes that are ``None`` are left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str | Markup) -> Markup:
    """Several pieces one after the other."""
    return Markup("".join(one if isinstance(one, Markup) else escape(one) for one in children))


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return escape(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")
