"""The recipes that a knowledge entry may name: what a fix means in the user's own code."""

from collections.abc import Callable

from ..facts import CaseFacts
from .first_failure import first_failure
from .join_loop import join_loop
from .nested_collective import move_out_of_condition
from .state_dict_prefix import save_unwrapped, strip_prefix
from .types import RecipeResult
from .unused_parameters import name_parameters

Recipe = Callable[[CaseFacts], RecipeResult]

RECIPES: dict[str, Recipe] = {
    "first-failure": first_failure,
    "join-loop": join_loop,
    "name-parameters": name_parameters,
    "nested-collective": move_out_of_condition,
    "save-unwrapped": save_unwrapped,
    "strip-prefix": strip_prefix,
}
