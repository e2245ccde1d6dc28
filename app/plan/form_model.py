"""The model that the planner's form names: a name, a path, numbers, or what code of the user's own builds."""

from collections.abc import Mapping

from ..errors import UserError
from ..system.files import expand_user
from . import model_locator, model_source
from .model import catalog, from_code
from .model_source import ModelSource

LONGEST_SAID = 40  # letters of a name, in a message


def resolve_form_model(value: str, built: Mapping[str, ModelSource | UserError]) -> ModelSource:
    """The model. ``built``: what code that was asked gave, or why it gave nothing; no other is imported.

    Raises:
        UserError: There is no such model, or code was not asked for it yet.
    """
    if value.endswith(".py"):
        way = f"ddpwizard plan --script {value[:LONGEST_SAID]} does; or name what builds it, as train:build_model"
        raise UserError("no script is read from here", way)
    if model_source.is_factory(value):
        from_code.check_factory(value)
        found = built.get(value) or UserError(
            f"{value[:LONGEST_SAID]} is code of yours: it is not imported yet",
            "enter in that field asks, then builds the model",
        )
        if isinstance(found, UserError):
            raise found
        return found
    if catalog.find_known_model(value) or _is_there(value):
        return model_source.catalog_or_path(value)
    return ModelSource(model_locator.find_model(value), [])


def _is_there(value: str) -> bool:
    try:
        return bool(value) and expand_user(value).exists()
    except (OSError, ValueError):
        return False
