"""The model that the planner's form names: a name, a path, numbers, or what code of the user's own builds."""

from collections.abc import Mapping

from ...app.errors import UserError
from ...app.files import expanded
from ...app.plan import named, sources
from ...app.plan.model import factory, known
from ...app.plan.sources import Source

LONGEST_SAID = 40  # letters of a name, in a message


def source(value: str, built: Mapping[str, Source | UserError]) -> Source:
    """The model. ``built``: what code that was asked gave, or why it gave nothing; no other is imported.

    Raises:
        UserError: There is no such model, or code was not asked for it yet.
    """
    if value.endswith(".py"):
        way = f"ddpwizard plan --script {value[:LONGEST_SAID]} does; or name what builds it, as train:build_model"
        raise UserError("no script is read from here", way)
    if sources.is_code(value):
        factory.check(value)
        found = built.get(value) or UserError(
            f"{value[:LONGEST_SAID]} is code of yours: it is not imported yet",
            "enter in that field asks, then builds the model",
        )
        if isinstance(found, UserError):
            raise found
        return found
    if known.find(value) or _is_there(value):
        return sources.known_or_there(value)
    return Source(named.model(value), [])


def _is_there(value: str) -> bool:
    try:
        return bool(value) and expanded(value).exists()
    except (OSError, ValueError):
        return False
