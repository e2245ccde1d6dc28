"""The vocabulary of ranks: names that scripts give to ranks, world sizes, first processes and distributed runs.

Everything that reads scripts asks here what a name means, so that review and triage give the same answer.
"""

import re
from functools import lru_cache
from typing import Literal

from ..launchers.rank_variables import LOCAL_WORLD_SIZES, RANK_SCOPES, WORLD_SIZES

# "group": a rank whose number within the job does not follow from its name (tensor parallel, pipeline, a subgroup).
RankKind = Literal["global", "local", "node", "group"]
Size = Literal["global", "local"]
Meaning = Literal["rank", "first", "last", "size", "flag"]
MOST_NAMES = 10_000  # whose meaning is kept

OWN = r"(?:global|world|ddp|dist|my|cur|current|proc|process|mpi|trainer|worker)_?"
GLOBAL_RANK = re.compile(rf"(?:{OWN})?rank(?:_?id)?|(?:global_)?process_index")
LOCAL_RANK = re.compile(r"(?:\w+_)?local_?rank(?:_?id)?|local_process_index")
NODE_RANK = re.compile(r"(?:node|machine|host)_(?:rank|index)")
GROUP_RANK = re.compile(r"\w+_(?:rank|rank_in_\w+)|rank_in_\w+|group_rank\w*")
# Numbers that are the same on every rank: a rank named as the source or target of a call, or the rank of a matrix.
NOT_OWN_RANK = re.compile(
    r"_?(?:\w+_)?(?:lora|adapter|matrix|low|full|page|search|max|min|num|n|per|each|every|src|source|dst|dest|destination|root|target)_rank"
)
QUESTION = re.compile(r"(?:has|is|use|with|no|needs)_")
GLOBAL_GETTER = re.compile(r"(?:get_)?(?:global_|world_)?rank|Get_rank|(?:get_|global_)ordinal|process_index")
LOCAL_GETTER = re.compile(r"(?:get_)?(?:node_)?local_(?:process_)?rank|(?:get_)?local_ordinal")
NODE_GETTER = re.compile(r"(?:get_)?(?:node|machine|host)_rank")
GROUP_GETTER = re.compile(r"get_\w+_rank")

FIRST = r"(?:main|master|primary|chief|lead|leader|zero|first|root)"
PROCESS = r"(?:process|rank|proc|worker|ordinal)"
PREFIX = r"(?:is_|am_|i_am_|on_)"
RANGE = r"(?:the_)?(?:global_|world_|dist_|local_)?"
FIRST_PROCESS = re.compile(
    rf"_?{PREFIX}?{RANGE}(?:{FIRST}_{PROCESS}|{PROCESS}_zero|rank_?(?:zero|0)(?:_only)?)"
    rf"|_?{PREFIX}{RANGE}(?:{FIRST}|coordinator)"
    r"|_?(?:global|local)_zero|_?(?:master|leader|coordinator|chief|primary)"
)
# A function of such a name may do something else: coordinator() makes one.
NOUN = re.compile(r"_?(?:master|leader|coordinator|chief|primary)")
FIRST_NODE = re.compile(rf"_?{PREFIX}{RANGE}{FIRST}_(?:node|host|machine)")
LAST_PROCESS = re.compile(rf"_?{PREFIX}?last_{PROCESS}")

WORLD_SIZE = re.compile(
    r"(?:get_)?(?:(?:global|local|ddp|dist|node_local)_)?world_size|(?:get_)?num_processes|n_?procs|num_ranks|n_?ranks|Get_size"
    r"|n_?procs?_per_node"
)
SIZE_OF_GROUP = re.compile(r"_?(?:get_)?\w+_(?:world|group)_size")
DEVICE_COUNT = re.compile(
    r"device_count|n(?:um)?_?gpus?(?:_per_node)?|gpus_per_node|local_world_size|nproc(?:_per_node)?", re.IGNORECASE
)
DISTRIBUTED = re.compile(
    r"_?(?:is_|use_|in_|using_)?(?:distributed(?:_data_parallel)?|ddp|dist|multi_?gpu|multiprocessing_distributed|torchrun|parallel)"
    r"(?:_run|_mode|_training)?"
    r"|is_dist_avail_and_initialized|is_available|is_initialized|is_dist_initialized|is_torchelastic_launched"
)

# Decorators and context managers of Lightning, Accelerate, transformers and of users that let one rank through.
ONE_RANK_DECORATOR = re.compile(
    r"rank_?zero|rank_?0|(?:main|master)_(?:process|only|rank)|on_(?:main|last|local_main)|(?:only|primary)_(?:rank|main|master|only)",
    re.IGNORECASE,
)
TURN_CONTEXTS = ("main_process_first", "local_main_process_first")  # the others wait until one rank is through
FIRST_IN = re.compile(r"(?:main_process|main_rank|rank_?zero|rank_?0|zero|master|main)_first$", re.IGNORECASE)


@lru_cache(MOST_NAMES)
def rank_kind(name: str) -> RankKind | None:
    """Return the kind of rank that a variable, an attribute or a key of this name holds, or None."""
    if name.upper() in RANK_SCOPES:
        # The variable GROUP_RANK of torchrun is the rank of a node; as a name, group_rank is a rank within a group.
        return RANK_SCOPES[name.upper()] if name.isupper() or name.upper() != "GROUP_RANK" else "group"
    lower = name.lower().lstrip("_")
    if QUESTION.match(lower):
        return None
    if LOCAL_RANK.fullmatch(lower):
        return "local"
    if NODE_RANK.fullmatch(lower):
        return "node"
    if GLOBAL_RANK.fullmatch(lower):
        return "global"
    if GROUP_RANK.fullmatch(lower) and not (NOT_OWN_RANK.fullmatch(lower) or first_process(name) or is_last(name)):
        return "group"
    return None


@lru_cache(MOST_NAMES)
def meaning(name: str, called: bool) -> tuple[Meaning, str] | None:
    """Return what a variable of this name holds, or a function returns if ``called``, and the kind of it."""
    if kind := (getter_kind(name) if called else None) or rank_kind(name):
        return "rank", kind
    if first := first_process(name, called):
        return "first", first
    if is_last(name):
        return "last", ""
    if size := world_size(name):
        return "size", size
    return ("flag", "") if is_distributed_flag(name) else None


@lru_cache(MOST_NAMES)
def getter_kind(name: str) -> RankKind | None:
    """Return the kind of rank that a function of this name returns when it is called without arguments, or None."""
    if LOCAL_GETTER.fullmatch(name):
        return "local"
    if NODE_GETTER.fullmatch(name):
        return "node"
    if GLOBAL_GETTER.fullmatch(name):
        return "global"
    return "group" if GROUP_GETTER.fullmatch(name) else None


def first_process(name: str, called: bool = False) -> Size | Literal["node"] | None:
    """Return which first process a flag (or a function, if ``called``) of this name asks for, or None.

    "global" is rank 0, "local" the first rank of each node, "node" any rank of the first node.
    """
    lower = name.lower()
    if FIRST_NODE.fullmatch(lower):
        return "node"
    if not FIRST_PROCESS.fullmatch(lower) or (called and NOUN.fullmatch(lower)):
        return None
    return "local" if "local" in lower else "global"


def is_last(name: str) -> bool:
    """Return whether a flag or function of this name asks for the last rank."""
    return bool(LAST_PROCESS.fullmatch(name.lower()))


@lru_cache(MOST_NAMES)
def world_size(name: str) -> Size | None:
    """Return whether a name holds the number of all ranks or of the ranks of one node, or None."""
    if name in LOCAL_WORLD_SIZES:
        return "local"
    if name in WORLD_SIZES:
        return "global"
    if WORLD_SIZE.fullmatch(name) or WORLD_SIZE.fullmatch(name.lower()):
        return "local" if "local" in name.lower() or name.lower().endswith("per_node") else "global"
    return None


def is_size_of_group(name: str) -> bool:
    """Return whether a function of this name returns the number of ranks in some group."""
    return bool(SIZE_OF_GROUP.fullmatch(name.lower()))


@lru_cache(MOST_NAMES)
def is_distributed_flag(name: str) -> bool:
    """Return whether a flag or function of this name is true in every distributed run."""
    return bool(DISTRIBUTED.fullmatch(name.lower()))


@lru_cache(MOST_NAMES)
def one_rank_decorator(name: str) -> Literal["first", "first local", "last"] | None:
    """Return which rank a decorator of this name lets through, or None if all."""
    if not ONE_RANK_DECORATOR.search(name) or FIRST_IN.search(name):
        return None
    return "last" if "last" in name else "first local" if "local" in name else "first"
