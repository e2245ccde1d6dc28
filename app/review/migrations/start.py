"""Join the process group at the start of a script, choose the device of the rank, and leave the group at the end."""

import ast

from ...training_script.syntax import FUNCTIONS, Function, call_argument, dotted_name, last_name
from ..patches.torch_names import free_name
from .facts import TrainingFacts
from .one_rank import log_once
from .rewriting import Rewriting

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.ClassDef, *FUNCTIONS)


def on_cpu(facts: TrainingFacts) -> bool:
    """Return whether a script never uses a GPU."""
    if any("cuda" in ast.unparse(stmt.value) or "accelerator" in ast.unparse(stmt.value) for stmt in facts.devices):
        return False
    return not any(
        last_name(call.func) == "cuda"
        or (isinstance(call.func, ast.Attribute) and call.func.attr == "to" and _may_be_gpu(facts, call))
        or "DataParallel" in facts.named(call)
        for call in facts.calls
    )


def device_expression(made: Rewriting, place: ast.stmt) -> str:
    """Return the device of the rank as code that can be evaluated before a statement."""
    facts = made.facts
    if on_cpu(facts):
        return f'{made.helpers.name("torch")}.device("cpu")'
    for stmt in facts.devices:
        scope = facts.names.enclosing_function(stmt)
        before = scope is None or (scope is facts.names.enclosing_function(place) and stmt.lineno < place.lineno)
        target = dotted_name(stmt.targets[0])
        if before and not _is_text(stmt.value) and (scope is None or not target.startswith("self.") or before):
            return target
    return made.helpers.name("device_of_rank") + "()"


def set_up_and_finish(made: Rewriting) -> None:
    """Call ``set_up`` where the script chooses its device, or else at its start, and ``finish`` at its normal end."""
    stmts = _device_statements(made)
    _free_of_indices(made)
    first = stmts[0] if stmts else None
    if first is not None and len(stmts) == 1 and _runs_first(made, first):
        _replace_choice(made, first, "set_up")
        log_once(made, lambda line: made.insert_after(first, line))
    else:
        for stmt in stmts:
            if not on_cpu(made.facts):
                _replace_choice(made, stmt, "device_of_rank")
        start = _start(made)
        made.insert_before(start, f"{made.helpers.name('set_up')}()")
        log_once(made, lambda line: made.insert_before(start, line))
    _finish(made)


def _finish(made: Rewriting) -> None:
    last = made.facts.start_body[-1]
    exits = last.value if isinstance(last, ast.Expr) else last.exc if isinstance(last, ast.Raise) else None
    end = [*_free_model(made), f"{made.helpers.name('finish')}()"]
    if made.facts.main_block and isinstance(exits, ast.Call) and last_name(exits.func) in ("exit", "SystemExit"):
        if len(exits.args) == 1 and isinstance(exits.args[0], ast.Call):
            name = free_name(made.facts.script, ("code", "exit_code"))
            made.insert_before(last, f"{name} = {made.source.one_line(exits.args[0])}", *end)
            made.replace(exits.args[0], name)
        else:
            made.insert_before(last, *end)
    elif made.facts.main_block and "exit" in ast.unparse(last):
        made.report(last, f"call {end[-1]} before the script exits")
    elif made.facts.main_block:
        made.insert_after(last, *end)
    else:
        made.insert_after(last, "", *end)


def _free_model(made: Rewriting) -> list[str]:
    """Return the line that frees a wrapped model of the module, which holds the process group."""
    name, at = made.wrapped_name, made.wrapped_at
    if not isinstance(name, ast.Name) or at is None:
        return []
    always_bound = made.source.parents[at] in (made.source.tree, made.facts.main_block)
    deleted = [node for node in made.facts.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)]
    return [f"del {name.id}"] if always_bound and name.id not in {node.id for node in deleted} else []


def _device_statements(made: Rewriting) -> list[ast.Assign | ast.If]:
    """Return the statements that choose the device; an ``if`` whose branches only assign it counts as one."""
    found: dict[ast.Assign | ast.If, None] = {}
    for stmt in made.facts.devices:
        at: ast.Assign | ast.If = stmt
        while isinstance(parent := made.source.parents[at], ast.If) and _only_assigns(parent, stmt):
            at = parent
        found[at] = None
    return [*found]


def _only_assigns(choice: ast.If, stmt: ast.Assign) -> bool:
    target = ast.dump(stmt.targets[0])
    return all(
        (isinstance(each, ast.Assign) and ast.dump(each.targets[0]) == target)
        or (isinstance(each, ast.If) and _only_assigns(each, stmt))
        for each in (*choice.body, *choice.orelse)
    )


def _replace_choice(made: Rewriting, choice: ast.If | ast.Assign, helper: str) -> None:
    stmt = next(node for node in ast.walk(choice) if isinstance(node, ast.Assign))
    target = made.source.code(stmt.targets[0])
    made.replace(choice, f"{target} = {_as_given(stmt, made.helpers.name(helper) + '()')}")


def _as_given(stmt: ast.Assign | ast.If, code: str) -> str:
    """Return a device as the script had it: as text, if it was one."""
    return f"str({code})" if isinstance(stmt, ast.Assign) and _is_text(stmt.value) else code


def _is_text(value: ast.expr) -> bool:
    parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in parts)


def _may_be_gpu(facts: TrainingFacts, call: ast.Call) -> bool:
    """Return whether ``x.to(…)`` may move to a GPU: its device is anything but the CPU."""
    target = call_argument(call, "device", 0)
    if target is None or facts.names.qualified(target).startswith("torch."):
        return False
    return any("cpu" not in ast.unparse(leaf) for leaf in facts.names.origins(target))


def _free_of_indices(made: Rewriting) -> None:
    """Let ``"cuda:0"`` and ``.cuda(0)`` mean the GPU of the rank, and give autocast the type of a device."""
    texts = {dotted_name(stmt.targets[0]) for stmt in made.facts.devices if _is_text(stmt.value)}
    for call in made.facts.calls:
        for given in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(given, ast.Constant) and isinstance(given.value, str) and given.value.startswith("cuda:"):
                if made.source.statement_of(call) not in made.facts.devices:
                    made.replace(given, '"cuda"')
            elif last_name(call.func) == "autocast" and dotted_name(given) in texts:
                made.surround(given, f"{made.helpers.name('torch')}.device(", ").type")
        match call:
            case ast.Call(func=ast.Attribute(attr="cuda"), args=[ast.Constant(value=int()) as number]):
                made.replace(number, "")
            case _:
                pass


def _start(made: Rewriting) -> ast.stmt:
    """Return the first statement that runs and that may need the process group."""
    body = made.source.tree.body
    for stmt in body:
        if stmt is made.facts.main_block:
            return made.facts.start_body[0]
        is_text = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
        if isinstance(stmt, DEFINITIONS) or is_text:
            continue
        if not made.facts.main_block or _has_changes(made, stmt):
            return stmt
    return body[-1]


def _runs_first(made: Rewriting, stmt: ast.stmt) -> bool:
    """Return whether nothing that needs the process group runs before a statement."""
    facts = made.facts
    function = facts.names.enclosing_function(stmt)
    parent = made.source.parents[stmt]
    if parent is not made.source.tree and parent is not facts.main_block and parent is not function:
        return False
    if function is None:
        return not any(_needs_group(made, each) for each in _before(made, stmt))
    calls = facts.names.arguments.get(function, [])
    if len(calls) != 1 or isinstance(made.source.parents[function], ast.ClassDef):
        return False
    if any(_needs_group(made, each) for each in function.body if each.lineno < stmt.lineno):
        return False
    caller = made.source.statement_of(calls[0][0])
    outer = facts.names.enclosing_function(caller)
    return outer is None and not any(_needs_group(made, each) for each in _before(made, caller))


def _before(made: Rewriting, stmt: ast.stmt) -> list[ast.stmt]:
    """Return the statements outside of functions that run before a statement."""
    inside = made.facts.main_block.body if made.facts.main_block else []
    top = [each for each in made.source.tree.body if each is not made.facts.main_block]
    return [each for each in (*top, *inside) if each.lineno < stmt.lineno and not isinstance(each, DEFINITIONS)]


def _needs_group(made: Rewriting, stmt: ast.stmt) -> bool:
    if isinstance(stmt, DEFINITIONS):
        return False
    if _has_changes(made, stmt):
        return True
    for node in ast.walk(stmt):
        function = made.facts.names.function(node) if isinstance(node, ast.Call) else None
        if function is not None and _has_changes_in(made, function):
            return True
    return False


def _has_changes_in(made: Rewriting, function: Function, depth: int = 4) -> bool:
    if any(_has_changes(made, each) for each in function.body):
        return True
    inner = (made.facts.names.function(node) for node in ast.walk(function) if isinstance(node, ast.Call))
    return bool(depth) and any(each is not None and _has_changes_in(made, each, depth - 1) for each in inner)


def _has_changes(made: Rewriting, stmt: ast.stmt) -> bool:
    return made.changes_lines(stmt.lineno, stmt.end_lineno or stmt.lineno)
