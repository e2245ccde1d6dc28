"""The recipes that a knowledge entry may name: what a fix means in the user's own code."""

import importlib
from collections.abc import Callable

from ..facts import CaseFacts
from .types import RecipeResult

Recipe = Callable[[CaseFacts], RecipeResult]

# The file of a recipe in this folder, and its function.
RECIPES: dict[str, tuple[str, str]] = {
    "agree-on-exit": ("agree_on_exit", "agree_on_exit"),
    "end-of-job": ("end_of_job", "end_of_job"),
    "fill-meta": ("fill_meta", "fill_meta"),
    "first-failure": ("first_failure", "first_failure"),
    "group-norm": ("group_norm", "group_norm"),
    "interface-in-script": ("interface_in_script", "interface_in_script"),
    "join-loop": ("join_loop", "join_loop"),
    "launcher-group": ("launcher_group", "launcher_group"),
    "limit-wait": ("limit_wait", "limit_wait"),
    "local-rank-argument": ("local_rank_argument", "local_rank_argument"),
    "name-parameters": ("unused_parameters", "name_parameters"),
    "nested-collective": ("nested_collective", "move_out_of_condition"),
    "one-dtype": ("one_dtype", "one_dtype"),
    "pair-exchange": ("pair_exchange", "pair_exchange"),
    "port-in-script": ("port_in_script", "port_in_script"),
    "run-always": ("run_always", "run_always"),
    "same-calls": ("same_calls", "same_calls"),
    "same-lock": ("same_lock", "same_lock"),
    "save-unwrapped": ("state_dict_prefix", "save_unwrapped"),
    "saved-keys": ("saved_keys", "saved_keys"),
    "shard-each": ("shard_each", "shard_each"),
    "share-by-turns": ("share_by_turns", "share_by_turns"),
    "strip-prefix": ("state_dict_prefix", "strip_prefix"),
    "thread-end": ("thread_end", "thread_end"),
    "without-pause": ("without_pause", "without_pause"),
    "worker-place": ("worker_place", "worker_place"),
}
# Those that change or show lines of the user's code, or of a running job: without either they have nothing to say.
OF_CODE = frozenset(
    {
        "agree-on-exit",
        "end-of-job",
        "join-loop",
        "launcher-group",
        "local-rank-argument",
        "nested-collective",
        "port-in-script",
        "same-calls",
        "save-unwrapped",
        "saved-keys",
        "share-by-turns",
        "strip-prefix",
    }
)


def load_recipe(name: str) -> Recipe | None:
    """Return the recipe of this name, or None. Only its own file is imported: ``diagnose`` needs one of them."""
    if name not in RECIPES:
        return None
    file, function = RECIPES[name]
    return getattr(importlib.import_module(f".{file}", __package__), function)
