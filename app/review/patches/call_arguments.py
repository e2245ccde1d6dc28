"""The patches that change the arguments of one call, or which of two similar functions is called."""

import ast

from ...training_script.edits import Edit
from ...training_script.model.reach import ALL
from ...training_script.source import ScriptSource
from ...training_script.syntax import call_argument, dotted_name, last_name
from ..rule_context import Patch, Script, no_patch
from .torch_names import distributed_module, free_name, torch_module

WAIT, ONE_ROOT, ON_ROOT, ON_ALL = "wait-for-end", "one-root", "list-on-root", "reduce-on-all"
UNUSED, SPLIT = "find-unused-parameters", "split-by-one-seed"
WHOLE, SEED_OF_RANK, ONE_SEED = "sample-own-part", "seed-of-rank", "one-seed"
REQUESTS = ("sent", "request", "sending")
SUMS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Constant, ast.Subscript)


def set_argument(source: ScriptSource, call: ast.Call, name: str, code: str, place: int | None = None) -> Edit | None:
    """Return the edit that gives an argument this value; None where it cannot be added."""
    given = call_argument(call, name, place)
    if given is not None:
        return source.replace(given, code)
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    return source.add_argument(call, f"{name}={code}")


def rank_code(module: str) -> str:
    """Return the code of the rank that is 0 without a process group."""
    return f"({module}.get_rank() if {module}.is_initialized() else 0)"


def wait_for_end(script: Script, call: ast.Call, ranks: int) -> Patch:
    """Return the patch for a call that only begins something. ``ranks``: those that reach it, as bits."""
    source, stmt = script.source, script.source.statement_of(call)
    why = "keep what it returns, and call its wait() where the tensor is used next"
    flag = call_argument(call, "async_op")
    if flag is not None:
        reason = "nothing runs meanwhile: to overlap both, keep what it returns and call its wait() later"
        return Patch(id=WAIT, safety="unsafe", why_unsafe=reason, edits=[source.replace(flag, "False")])
    if ranks != ALL:
        reason = "a rank waits here until the other side has come to its call"
        return Patch(id=WAIT, safety="unsafe", why_unsafe=reason, edits=[_behind(source, call, ".wait()")])
    block = source.block_of(stmt)
    following = block[block.index(stmt) + 1 :][:1]
    receives = [each for each in following if isinstance(each, ast.Expr) and last_name(each.value) == "recv"]
    name = free_name(script, REQUESTS)
    last = (receives[0].end_lineno or 0) if receives else 0
    if last_name(call) != "isend" or not last or last >= len(source.starts) or not name or not source.alone(stmt):
        return no_patch(WAIT, why)
    at = source.start(call)
    edits = [Edit(at, at, f"{name} = "), source.insert_line(last + 1, f"{name}.wait()", source.indent(stmt.lineno))]
    return Patch(id=WAIT, safety="unsafe", why_unsafe="every rank has to receive what is sent to it", edits=edits)


def wait_for_result(script: Script, call: ast.Call) -> Patch:
    """Return the patch that waits for what a call does in the background."""
    reason = "nothing runs meanwhile: to overlap both, keep what it returns and call its result() later"
    return Patch(id=WAIT, safety="unsafe", why_unsafe=reason, edits=[_behind(script.source, call, ".result()")])


def root_of_group(script: Script, call: ast.Call, name: str, place: int) -> Patch:
    """Return the patch that names the first member of a group as the root."""
    group, root, module = call_argument(call, "group"), call_argument(call, name, place), _module(script, call)
    if group is None or root is None or not module or not isinstance(group, ATOMS):
        return no_patch(ONE_ROOT, "pass the global rank of a member: torch.distributed.get_global_rank(group, 0)")
    code = f"{module}.get_global_rank({script.source.one_line(group)}, 0)"
    reason = "the first rank in the list of members is the root of each group"
    return Patch(id=ONE_ROOT, safety="unsafe", why_unsafe=reason, edits=[script.source.replace(root, code)])


def first_as_root(script: Script, call: ast.Call, name: str, place: int) -> Patch:
    """Return the patch that sends the values of rank 0 to all, where each rank names itself."""
    root = call_argument(call, name, place)
    if root is None or not last_name(call).startswith("broadcast"):
        return no_patch(ONE_ROOT, "pass the same rank on all ranks")
    reason = "every rank then has the values of rank 0"
    return Patch(id=ONE_ROOT, safety="unsafe", why_unsafe=reason, edits=[script.source.replace(root, "0")])


def list_on_root(script: Script, call: ast.Call, name: str, place: int, root: int) -> Patch:
    """Return the patch that passes a list on the root only."""
    given, module = call_argument(call, name, place), _module(script, call)
    if given is None or not module or not isinstance(given, ATOMS):
        return no_patch(ON_ROOT, "pass None on all ranks but the root")
    code = f"{script.source.one_line(given)} if {module}.get_rank() == {root} else None"
    return Patch(id=ON_ROOT, safety="safe", edits=[script.source.replace(given, code)])


def reduce_on_all(script: Script, call: ast.Call) -> Patch:
    """Return the patch that gives the result of a reduction to every rank."""
    source, tensor = script.source, call_argument(call, "tensor", 0)
    kept = [f"{each.arg}={source.one_line(each.value)}" for each in call.keywords if each.arg in ("op", "group")]
    known = {"tensor", "dst", "op", "group"}
    if tensor is None or len(call.args) > 2 or any(each.arg not in known for each in call.keywords):
        return no_patch(ON_ALL, "call all_reduce, and decide by the same value on every rank")
    function = source.code(call.func).removesuffix("reduce") + "all_reduce"
    code = f"{function}({', '.join([source.one_line(tensor), *kept])})"
    reason = "the tensor holds the result on every rank, also where it was that rank's own value"
    return Patch(id=ON_ALL, safety="unsafe", why_unsafe=reason, edits=[source.replace(call, code)])


def find_unused(script: Script, call: ast.Call) -> Patch:
    """Return the patch that lets DDP look for parameters without a gradient."""
    edit = set_argument(script.source, call, "find_unused_parameters", "True")
    if edit is None:
        return no_patch(UNUSED, "pass find_unused_parameters=True, or take the layer out of the model")
    reason = "DDP then goes through the graph in each step, which takes time"
    return Patch(id=UNUSED, safety="unsafe", why_unsafe=reason, edits=[edit])


def split_by_one_seed(script: Script, call: ast.Call) -> Patch:
    """Return the patch that splits data by a generator with the same seed on all ranks."""
    torch = torch_module(script, call)
    edit = set_argument(script.source, call, "generator", f"{torch}.Generator().manual_seed(0)", 2) if torch else None
    if edit is None:
        return no_patch(SPLIT, "pass a generator with the same seed on all ranks")
    return Patch(id=SPLIT, safety="unsafe", why_unsafe="the parts are not those of earlier runs", edits=[edit])


def sample_own_part(script: Script, sampler: ast.Call) -> Patch:
    """Return the patch that lets a sampler take all of the part that a rank has."""
    source, given = script.source, [each.arg for each in sampler.keywords]
    if len(sampler.args) > 1 or None in given:
        return no_patch(WHOLE, "pass num_replicas=1 and rank=0, or give every rank the whole dataset")
    code = {"num_replicas": "1", "rank": "0"}
    edits = [source.replace(each.value, code[each.arg]) for each in sampler.keywords if each.arg in code]
    missing = ", ".join(f"{name}={value}" for name, value in code.items() if name not in given)
    added = source.add_argument(sampler, missing) if missing else None
    if missing and added is None:
        return no_patch(WHOLE, "pass num_replicas=1 and rank=0, or give every rank the whole dataset")
    reason = "an epoch has more steps, and their number differs where the parts of the ranks do"
    return Patch(id=WHOLE, safety="unsafe", why_unsafe=reason, edits=[*edits, added] if added else edits)


def seed_of_rank(script: Script, call: ast.Call) -> Patch:
    """Return the patch that adds the rank to the only argument of a call."""
    module, source = distributed_module(script, call), script.source
    given = [*call.args, *(each.value for each in call.keywords)]
    if len(given) != 1 or not module or not _is_number(given[0]):
        return no_patch(SEED_OF_RANK, "add the rank to the seed that is set behind the wrap")
    end = source.end(given[0])
    reason = "the numbers are not those of earlier runs"
    return Patch(id=SEED_OF_RANK, safety="unsafe", why_unsafe=reason, edits=[Edit(end, end, f" + {rank_code(module)}")])


def one_seed(script: Script, call: ast.Call, name: str, place: int) -> Patch:
    """Return the patch that takes the rank out of a seed to which it is added."""
    seed = call_argument(call, name, place)
    why = "pass the same seed on all ranks"
    if not isinstance(seed, ast.BinOp) or not isinstance(seed.op, ast.Add):
        return no_patch(ONE_SEED, why)
    same = [each for each in (seed.left, seed.right) if not script.depends_on_rank(each)]
    if len(same) != 1:
        return no_patch(ONE_SEED, why)
    reason = "whatever is drawn by this seed is then the same on all ranks"
    edits = [script.source.replace(seed, script.source.one_line(same[0]))]
    return Patch(id=ONE_SEED, safety="unsafe", why_unsafe=reason, edits=edits)


def _behind(source: ScriptSource, node: ast.expr, code: str) -> Edit:
    end = source.end(node)
    return Edit(end, end, code)


def _module(script: Script, call: ast.Call) -> str:
    """Return the name of ``torch.distributed`` by which a call is made, or by the imports."""
    return dotted_name(call.func).rpartition(".")[0] or distributed_module(script, call)


def _is_number(node: ast.expr) -> bool:
    """Return whether ``+`` can be put behind the code of an expression."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, SUMS)
    return isinstance(node, ATOMS)
