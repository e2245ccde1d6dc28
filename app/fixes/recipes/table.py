"""The recipes that a knowledge entry may name: what a fix means in the user's own code."""

from collections.abc import Callable

from ..facts import CaseFacts
from .agree_on_exit import agree_on_exit
from .first_failure import first_failure
from .join_loop import join_loop
from .limit_wait import limit_wait
from .nested_collective import move_out_of_condition
from .pair_exchange import pair_exchange
from .port_in_script import port_in_script
from .same_calls import same_calls
from .same_lock import same_lock
from .state_dict_prefix import save_unwrapped, strip_prefix
from .types import RecipeResult
from .unused_parameters import name_parameters
from .worker_place import worker_place

Recipe = Callable[[CaseFacts], RecipeResult]

RECIPES: dict[str, Recipe] = {
    "agree-on-exit": agree_on_exit,
    "first-failure": first_failure,
    "join-loop": join_loop,
    "limit-wait": limit_wait,
    "name-parameters": name_parameters,
    "nested-collective": move_out_of_condition,
    "pair-exchange": pair_exchange,
    "port-in-script": port_in_script,
    "same-calls": same_calls,
    "same-lock": same_lock,
    "save-unwrapped": save_unwrapped,
    "strip-prefix": strip_prefix,
    "worker-place": worker_place,
}
