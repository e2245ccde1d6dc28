"""DW453 and DW454: roots that have nothing to send, and lists of the root that all ranks read."""

import ast
from collections.abc import Iterator

from ...training_script.collectives import GROUP_PLACE
from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, RANKS, Key, parts
from ...training_script.model.reach import ALL, Run, argument
from ...training_script.nodes import walk
from ...training_script.syntax import dotted_name, last_name, nodes_of_body
from ..one_node import is_for_one_node
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at, violation_at_node

PREFIX = "torch.distributed."
EMPTY = {f"torch.{name}" for name in ("empty", "zeros", "empty_like", "zeros_like")}
_STATE = f"{PREFIX}checkpoint.state_dict."
STATES = {f"{_STATE}{name}" for name in ("get_model_state_dict", "get_optimizer_state_dict")}
LOADS = {"load_state_dict"}
UNFILLED = {"torch.empty", "torch.empty_like"}
# The tensor that a call sends, where another one is for the result.
EXCHANGES = {
    "all_to_all_single": (1, "input"),
    **dict.fromkeys(("all_gather_into_tensor", "all_gather_single"), (1, "input_tensor")),
    **dict.fromkeys(("reduce_scatter_tensor", "reduce_scatter_single"), (1, "input")),
    "all_gather": (1, "tensor"),
    "gather": (0, "tensor"),
}
LISTS = {"gather": (1, "gather_list"), "gather_object": (1, "object_gather_list")}


def check_root(script: Script, run: Run) -> Iterator[Violation]:
    """DW453: yield the broadcasts from a rank that has an empty tensor, or that has not loaded what it sends."""
    loads = [(reach, fact) for reach, fact in run.of(".load_state_dict") if fact.owner and not reach.unsure]
    held = {
        fact.result.key: fact for _, fact in run.of(".parameters", ".state_dict", ".named_parameters") if fact.owner
    }
    for reach, fact in run.of(PREFIX + "broadcast", PREFIX + "broadcast_object_list"):
        given, root, group = (
            argument(fact, 0, "tensor", "object_list"),
            argument(fact, 1, "src"),
            argument(fact, 2, "group"),
        )
        if not (given and root and root.key.is_constant and type(root.key.value) is int and reach.ranks == ALL):
            continue
        if (group and group.key is not run.keys.none) or not 0 <= root.key.value < len(RANKS):
            continue
        number = root.key.value
        made = _makers(run, given.key, number)
        owners = {held[part].owner for part in parts(given.key) if part in held}
        loaded = [
            each for each, load in loads if load.owner in owners and run.reached.index(each) < run.reached.index(reach)
        ]
        reaching = 0
        for each in loaded:
            reaching |= each.ranks
        if made or (loaded and not reaching & 1 << number):
            who = made or ", ".join(str(bit) for bit in range(len(RANKS)) if reaching & 1 << bit)
            yield from violation_at(
                script,
                reach,
                f"rank {number} sends what it has here, and rank {who} has the values: all get what was there before",
                0.8,
            )


def check_sent(script: Script, run: Run) -> Iterator[Violation]:
    """DW453: yield the exchanges in which each rank sends a tensor that nothing has filled."""
    for reach, fact in run.of(*(PREFIX + name for name in EXCHANGES)):
        given = _argument(fact, *EXCHANGES[fact.name.removeprefix(PREFIX)])
        if not isinstance(given, ast.Name) or not script.is_here(reach) or not reach.several:
            continue
        made = origins_at(script, given)
        empty = [each for each in made if isinstance(each, ast.Call) and script.names.qualified(each.func) in UNFILLED]
        if made and len(empty) == len(made) and not _is_used_between(script, made, fact.node, given.id):
            yield from violation_at(
                script,
                reach,
                f"`{given.id}` is what this sends, and nothing has filled it: the tensor for the result comes first",
                0.85,
            )


def _is_used_between(script: Script, made: list[ast.AST], call: ast.Call, name: str) -> bool:
    """Return whether a tensor is named between where it is made and a call, or in a loop around the call."""
    around = script.names.enclosing_function(call) or script.source.tree
    first = min(getattr(each, "end_lineno", 0) or 0 for each in made)
    in_loop = any(isinstance(node, ast.For | ast.While) and call in ast.walk(node) for node in ast.walk(around))
    return in_loop or any(
        isinstance(node, ast.Name) and node.id == name and first < node.lineno < call.lineno
        for node in ast.walk(around)
    )


def _makers(run: Run, given: Key, root: int) -> str:
    """Return the rank that has made the values of a tensor, if the root has an empty one for them."""
    if given.op != "if" or not given.args[0].differs_by & BY_RANK:
        return ""
    seen = [run.keys.specialise(given, rank) for rank in RANKS]
    if not _is_empty(seen[root]):
        return ""
    full = [str(rank.rank) for rank, each in zip(RANKS, seen, strict=True) if not _is_empty(each)]
    return full[0] if len(full) == 1 else ""


def _is_empty(key: Key) -> bool:
    """Return whether a value is a place for others: an empty tensor, or a list of None."""
    if key.op == "call":
        return str(key.args[0]) in EMPTY
    if key.op == "sequence":
        return bool(key.args) and all(each.is_constant and each.value is None for each in key.args)
    return key.op == "binary" and key.args[0] == "Mult" and any(map(_is_empty, (part for part in key.args[1:])))


def check_list(script: Script, run: Run) -> Iterator[Violation]:
    """DW454: yield what all ranks read of a list that is None on every rank but the root."""
    for reach, fact in run.of(*(PREFIX + name for name in LISTS)):
        place = LISTS[fact.name.removeprefix(PREFIX)]
        given = argument(fact, *place)
        node = _argument(fact, *place)
        if given is None or not isinstance(node, ast.Name) or not script.is_here(reach) or not reach.several:
            continue
        seen = [run.keys.specialise(given.key, rank) for rank in RANKS]
        if not (any(each is run.keys.none for each in seen) and seen[0] is not run.keys.none):
            continue
        read = _read_by_all(script, fact.node, node.id)
        if read is not None:
            yield violation_at_node(
                read,
                f"`{node.id}` is None on every rank but the one that gathers (line {fact.site.line}), and all "
                "ranks read it here",
                0.85,
                related=[RelatedPlace(path=script.source.path, line=fact.site.line, message="gathered here")],
            )


def check_state(script: Script, run: Run) -> Iterator[Violation]:
    """DW454: yield the states that only one rank gets, taken or read by all."""
    for reach, fact in run.of(*STATES):
        target = script.source.parents.get(fact.node)
        if not script.is_here(reach) or not reach.several or not _is_of_first(script, fact):
            continue
        match target:
            case ast.Assign(targets=[ast.Name(id=name)]):
                read = _read_by_all(script, fact.node, name, LOADS)
            case _:
                read = None
        if read is not None:
            yield violation_at_node(
                read,
                f"`{read.id}` is empty on every rank but 0, as full_state_dict and cpu_offload ask for (line "
                f"{fact.site.line}), and all ranks read it here",
                0.85,
                related=[RelatedPlace(path=script.source.path, line=fact.site.line, message="taken here")],
            )
    sent = [(reach, fact) for reach, fact in run.of(".consolidate_state_dict") if fact.owner and not reach.unsure]
    for reach, fact in run.of(".state_dict"):
        before = [
            each
            for each, begun in sent
            if fact.owner
            and begun.owner
            and begun.owner.key is fact.owner.key
            and ((to := argument(begun, 0, "to")) is None or to.key is run.keys.constant(0))
            if run.reached.index(each) < run.reached.index(reach)
        ]
        if before and reach.several and not reach.attempted:
            yield from violation_at(
                script,
                reach,
                "consolidate_state_dict has sent the state of this optimizer to rank 0 only: on the others state_dict "
                "raises an error",
                0.85,
            )


def _is_of_first(script: Script, fact: Noted) -> bool:
    """Return whether the options of a call ask for the whole state on the CPU, which rank 0 alone gets."""
    options = next((each.value for each in fact.node.keywords if each.arg == "options"), None)
    for made in script.names.origins(options) if options is not None else ():
        named = {each.arg for each in made.keywords if _is_true(each.value)} if isinstance(made, ast.Call) else set()
        if not named >= {"full_state_dict", "cpu_offload"}:
            return False
    return options is not None


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _argument(fact: Noted, place: int, name: str) -> ast.expr | None:
    if place < len(fact.node.args):
        return fact.node.args[place]
    return next((each.value for each in fact.node.keywords if each.arg == name), None)


def _read_by_all(script: Script, call: ast.Call, name: str, calls: set[str] | None = None) -> ast.Name | None:
    """Return the first use of a list behind a call that no condition on the rank, or on the list, keeps ranks from.

    ``calls``: the functions that read it, any for None.
    """
    function = script.names.enclosing_function(call)
    nodes = nodes_of_body(function) if isinstance(function, ast.FunctionDef) else walk(script.source.tree)
    later = [node for node in nodes if getattr(node, "lineno", 0) > (call.end_lineno or call.lineno)]
    if any(isinstance(node, ast.Return | ast.Raise) and _is_decided(script, node, name) for node in later):
        return None
    for node in sorted((each for each in later if isinstance(each, ast.Name)), key=lambda each: each.lineno):
        parent = script.source.parents.get(node)
        used = isinstance(parent, ast.comprehension | ast.For | ast.Subscript) or (
            isinstance(parent, ast.Call) and (calls is None or last_name(parent.func) in calls)
        )
        if node.id == name and isinstance(node.ctx, ast.Load) and used:
            return None if _is_decided(script, node, name) else node
    return None


def _is_decided(script: Script, node: ast.AST, name: str) -> bool:
    """Return whether a condition around a node is about the rank, or about the list itself."""
    at, below = script.source.parents.get(node), node
    while at is not None:
        test = at.subject if isinstance(at, ast.Match) else at.test if isinstance(at, ast.If | ast.IfExp) else below
        if isinstance(test, ast.expr) and below is not test:
            key = script.evaluated.value(test)
            names = {dotted_name(each) for each in ast.walk(test) if isinstance(each, ast.Name)}
            if key is None or key.differs_by or name in names:
                return True
        at, below = script.source.parents.get(at), at
    return False


def check_size(script: Script, run: Run) -> Iterator[Violation]:
    """DW455: yield the divisions of a sum by another number than that of the ranks which have summed it up."""
    for reach, fact in run.of(PREFIX + "all_reduce"):
        group = argument(fact, GROUP_PLACE["all_reduce"], "group")
        small = group is not None and bool(group.facts & {"own", "members"})
        by_all = group is None and reach.by_all and not is_for_one_node(script)
        name = dotted_name(fact.node.args[0]) if fact.node.args else ""
        if not (small or by_all) or not name or not script.is_here(reach):
            continue
        for node in _behind(script, fact.node):
            match node:
                case (
                    ast.BinOp(left=left, op=ast.Div(), right=number)
                    | ast.AugAssign(target=left, op=ast.Div(), value=number)
                ):
                    pass
                case ast.Call(func=ast.Attribute(value=left, attr="div_" | "div"), args=[number]):
                    pass
                case _:
                    continue
            key = script.evaluated.value(number)
            if dotted_name(left) != name or key is None:
                continue
            if by_all and key.op == "devices":
                yield violation_at_node(
                    node,
                    f"all ranks sum this up (line {fact.site.line}), and it is divided by the number of GPUs of a node",
                    0.75,
                    severity="warning",
                )
                break
            if small and key.op == "world" and key.args == ("global",):
                yield violation_at_node(
                    node,
                    f"a group sums this up (line {fact.site.line}), and it is divided by the number of all "
                    "ranks: dist.get_world_size(group) is that of the group",
                    0.8,
                )
                break


def _behind(script: Script, call: ast.Call) -> Iterator[ast.expr | ast.stmt]:
    """Yield what is in the function of a call behind it."""
    function = script.names.enclosing_function(call)
    nodes = nodes_of_body(function) if isinstance(function, ast.FunctionDef) else walk(script.source.tree)
    for node in nodes:
        if isinstance(node, ast.expr | ast.stmt) and node.lineno > (call.end_lineno or call.lineno):
            yield node
