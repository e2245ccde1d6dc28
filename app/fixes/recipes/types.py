"""The result of a recipe: a fix for the user's own code, or the way to it."""

import msgspec

from ..types import FilePatch, Place


class RecipeResult(msgspec.Struct, frozen=True, kw_only=True):
    """Patches where they are possible, else the lines and what to do with them."""

    text: str = ""
    code: str = ""
    patches: list[FilePatch] = []
    places: list[Place] = []
