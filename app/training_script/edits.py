"""Edits of a source file."""

import msgspec


class Edit(msgspec.Struct, frozen=True):
    """Replace ``start``..``end`` (character offsets into the original text) by ``text``."""

    start: int
    end: int
    text: str
