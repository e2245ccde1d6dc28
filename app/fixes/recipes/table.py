"""The recipes that a knowledge entry may name: what a fix means in the user's own code."""

from collections.abc import Callable

from ..facts import CaseFacts
from .add_sampler import add_sampler
from .agree_on_exit import agree_on_exit
from .call_wrapper import call_wrapper
from .end_of_job import end_of_job
from .first_failure import first_failure
from .join_loop import join_loop
from .launcher_group import launcher_group
from .limit_wait import limit_wait
from .nested_collective import move_out_of_condition
from .one_writer import one_writer
from .optimizer_after_shard import optimizer_after_shard
from .pair_exchange import pair_exchange
from .port_in_script import port_in_script
from .same_calls import same_calls
from .same_lock import same_lock
from .state_dict_prefix import save_unwrapped, strip_prefix
from .types import RecipeResult
from .unscale_before_clip import unscale_before_clip
from .unused_parameters import name_parameters
from .worker_place import worker_place

Recipe = Callable[[CaseFacts], RecipeResult]

RECIPES: dict[str, Recipe] = {
    "add-sampler": add_sampler,
    "agree-on-exit": agree_on_exit,
    "call-wrapper": call_wrapper,
    "end-of-job": end_of_job,
    "first-failure": first_failure,
    "join-loop": join_loop,
    "launcher-group": launcher_group,
    "limit-wait": limit_wait,
    "name-parameters": name_parameters,
    "nested-collective": move_out_of_condition,
    "one-writer": one_writer,
    "optimizer-after-shard": optimizer_after_shard,
    "pair-exchange": pair_exchange,
    "port-in-script": port_in_script,
    "same-calls": same_calls,
    "same-lock": same_lock,
    "save-unwrapped": save_unwrapped,
    "strip-prefix": strip_prefix,
    "unscale-before-clip": unscale_before_clip,
    "worker-place": worker_place,
}
