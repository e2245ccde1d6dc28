"""Save, load, clip and accumulate with a sharded model: whole checkpoints, as one process has them."""

import ast

from ...training_script.syntax import dotted_name, last_name
from ..rank_bindings import is_under_rank_condition
from .module_attributes import runs_after_wrap
from .rewriting import Rewriting
from .types import Refusal

CLIP = ("clip_grad_norm_", "clip_grad_norm")


def gather_state(made: Rewriting) -> None:
    """Gather and shard states where the script saves and loads them, and use the model without ``.module``."""
    for call in made.facts.calls:
        around = made.facts.names.enclosing_function(call)
        in_helper = around is not None and around.name == "save_once"
        saves = made.facts.named(call) == "torch.save" or last_name(call.func) == "save_once"
        if not in_helper and saves and call.args and made.facts.is_model(call.args[0]):
            raise Refusal(call.lineno, "it saves the model object, of which each rank has a part: save its state_dict")
        match call.func:
            case ast.Attribute(value=owner, attr="state_dict") if _is_sharded(made, owner, call):
                _gather(made, call, f"{made.helpers.name('full_state_dict')}({_bare(made, owner)})")
            case ast.Attribute(value=owner, attr="load_state_dict") if _is_sharded(made, owner, call):
                _load(made, call, "load_full_state_dict", _bare(made, owner))
            case ast.Attribute(value=owner, attr="state_dict") if made.facts.is_optimizer(owner):
                _gather(made, call, f"{made.helpers.name('full_optimizer_state_dict')}({made.source.code(owner)})")
            case ast.Attribute(value=owner, attr="load_state_dict") if made.facts.is_optimizer(owner):
                _load(made, call, "load_full_optimizer_state_dict", made.source.code(owner))
            case ast.Attribute(value=owner, attr="no_sync") if made.facts.is_model(owner):
                made.replace(call, f"{made.helpers.name('without_reduction')}({_bare(made, owner)})")
            case _:
                pass
    done = {node for each in made.changed for node in ast.walk(each)}
    for node in made.facts.nodes:
        is_inner = isinstance(node, ast.Attribute) and node.attr == "module" and made.facts.is_model(node.value)
        if isinstance(node, ast.Attribute) and is_inner and node not in done:
            made.replace(node, made.source.code(node.value))


def read_full_norm(made: Rewriting) -> None:
    """Read the norm that clipping returns as a whole tensor where the script uses it."""
    for call in made.facts.calls:
        is_used = not isinstance(made.source.parents[call], ast.Expr)
        if last_name(call.func) in CLIP and is_used:
            made.surround(call, "", ".full_tensor()")


def _is_sharded(made: Rewriting, owner: ast.expr, call: ast.Call) -> bool:
    return made.facts.is_model(owner) and runs_after_wrap(made, call)


def _bare(made: Rewriting, owner: ast.expr) -> str:
    """Return the code of the model without ``.module``."""
    return made.source.code(owner.value if isinstance(owner, ast.Attribute) and owner.attr == "module" else owner)


def _load(made: Rewriting, call: ast.Call, helper: str, owner: str) -> None:
    if len(call.args) != 1 or call.keywords:
        raise Refusal(call.lineno, "load_state_dict with options: load it by hand, with set_model_state_dict")
    made.surround_call(call, f"{made.helpers.name(helper)}({owner}, ", ")")


def _gather(made: Rewriting, call: ast.Call, code: str) -> None:
    """Replace a state by the gathered one; where one rank saves it, all gather it before the condition."""
    if not is_under_rank_condition(made.facts.script, call):
        _let_all_ranks_call(made, call)
        made.replace(call, code)
        return
    guard = _outermost_condition(made, call)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call
    name = f"whole_{dotted_name(owner).removesuffix('.module').rpartition('.')[2]}"
    made.insert_before(guard, f"{name} = {code}  # on every rank")
    made.replace(call, name)


def _outermost_condition(made: Rewriting, call: ast.Call) -> ast.stmt:
    """Return the condition on the rank around a call: the innermost ``if`` that makes it depend on the rank."""
    at: ast.AST = call
    while (above := made.source.parents.get(at)) is not None:
        if isinstance(above, ast.If) and not is_under_rank_condition(made.facts.script, above):
            return above
        at = above
    raise Refusal(call.lineno, "only some ranks save here: let all ranks gather the state")


def _let_all_ranks_call(made: Rewriting, call: ast.Call, depth: int = 4) -> None:
    """Drop the condition on the rank around the calls of the function that gathers; rank 0 alone saves in it."""
    function = made.facts.names.enclosing_function(call)
    if function is None or not depth:
        return
    callers = [each for each, _ in made.facts.names.arguments.get(function, [])]
    for each in callers or [each for each, _ in made.facts.callers_of_method(function)]:
        if is_under_rank_condition(made.facts.script, each):
            _drop_rank_test(made, each)
            _save_on_one_rank(made, function)
        else:
            _let_all_ranks_call(made, each, depth - 1)


def _drop_rank_test(made: Rewriting, call: ast.Call) -> None:
    guard = _outermost_condition(made, call)
    test = guard.test if isinstance(guard, ast.If) else None
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.And):
        raise Refusal(guard.lineno, "only some ranks save here, and a sharded model needs all of them: let all do it")
    if test in made.changed:
        return
    rest = [each for each in test.values if not _tests_rank(made, each)]
    if not 0 < len(rest) < len(test.values):
        raise Refusal(guard.lineno, "only some ranks save here, and a sharded model needs all of them: let all do it")
    made.replace(test, " and ".join(made.source.code(each) for each in rest))


def _tests_rank(made: Rewriting, test: ast.expr) -> bool:
    """Return whether a condition compares the rank itself with a constant, or is a call or a name such as is_main."""
    match test:
        case ast.Compare(left=ast.Name() | ast.Attribute() | ast.Call(), comparators=[ast.Constant()]):
            return made.facts.script.depends_on_rank(test)
        case ast.UnaryOp(op=ast.Not()) | ast.Name() | ast.Attribute() | ast.Call():
            return made.facts.script.depends_on_rank(test)
    return False


def _save_on_one_rank(made: Rewriting, function: ast.AST) -> None:
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or call.func in made.changed:
            continue
        if made.facts.named(call) == "torch.save" and len(call.args) == 2:
            made.replace(call.func, made.helpers.name("save_once"))
        elif isinstance(call.func, ast.Name) and call.func.id == "print":
            made.replace(call.func, made.helpers.name("print_once"))
