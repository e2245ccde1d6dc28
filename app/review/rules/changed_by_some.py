"""DW256: modules without DDP that only some ranks load or change, and that all ranks use."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.amounts import BATCH
from ...training_script.model.collective_effects import SAME
from ...training_script.model.keys import LOCAL, Key, parts
from ...training_script.model.library_calls import RANDOM
from ...training_script.model.reach import ALL, Run
from ...training_script.nodes import nodes_below, nodes_of_kinds
from ...training_script.syntax import FUNCTIONS, Function, call_argument, dotted_name, match_arguments
from ...training_script.torch_classes import DDP_CLASSES
from ..rule_context import Script, Violation
from ..violations import violation_at, violation_at_node
from .own_changes import IN_PLACE

OWN = "self."
SHARES = re.compile(r"(?:broadcast|scatter|\bsync_)\w*\(|sync_module|all_?reduce\(\s*\w*param")
CHANGES = re.compile(r"load_state_dict|\.parameters\(\)|update_parameters")
AVERAGES = {"torch.optim.swa_utils.AveragedModel"}


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the states and changes that only some ranks give to a module with which all of them compute."""
    if (
        not run.distributed
        or not script.mentions(CHANGES)
        or script.mentions(SHARES, "broadcast", "scatter", "sync_", "reduce(")
    ):
        return
    for reach, fact in run.of(".load_state_dict"):
        module = fact.node.func.value if isinstance(fact.node.func, ast.Attribute) else None
        if module is None or not script.is_here(reach):
            continue
        own = next((each for each in reach.own_conditions if _is_of_data(each.test)), None)
        if own and (use := _use_by_all(script, module)) and reach.loops:
            yield from violation_at(
                script,
                reach,
                f"data of each rank decide whether it loads this state (line {own.site.line}), and all ranks compute "
                f"with the module (line {use.lineno}): its copies drift apart",
                0.7,
                branch=own.site.line,
            )
            continue
        if reach.ranks == ALL or reach.unsure or _gives_back(script, fact.node, module):
            continue
        if (use := _use_by_all(script, module)) and not _is_in_function_of_some(script, fact.node, use):
            yield from violation_at(
                script,
                reach,
                f"only some ranks load this state, and all of them compute with the module (line {use.lineno}): the "
                "others use what it began with",
                0.8,
            )
    if not script.is_first_distributed(run):
        return
    yield from _averages_of_some(script)
    for node in nodes_of_kinds(script.source.tree, ast.Call):
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr=method)) if method in IN_PLACE:
                module = _owner(script, target)
            case _:
                continue
        if module is not None and _is_of_some(script, node) and (use := _use_by_all(script, module)):
            yield violation_at_node(
                node,
                f"only some ranks change this module, and all of them compute with it (line {use.lineno}): the "
                "others use what it began with",
                0.75,
            )


def _gives_back(script: Script, call: ast.Call, module: ast.expr) -> bool:
    """Return whether a module gets the state back that it had before, as after an evaluation with other weights."""
    given = call_argument(call, "state_dict", 0)
    own = f"{ast.unparse(module)}.state_dict"
    made = script.names.origins(given) if isinstance(given, ast.Name) else ()
    return any(
        isinstance(each, ast.Call) and own in (dotted_name(each.func), *map(_called, each.args)) for each in made
    )


def _called(given: ast.expr) -> str:
    return dotted_name(given.func) if isinstance(given, ast.Call) else ""


def _averages_of_some(script: Script) -> Iterator[Violation]:
    """Yield the calls by which only some ranks change a module, as an average of weights is changed in each step."""
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    for node in calls:
        changed = _changed_by(script, node) if _is_of_some(script, node) else set[str]()
        function = script.names.enclosing_function(node)
        use = next(
            (
                each
                for each in calls
                if changed
                and script.names.enclosing_function(each) is function
                and _computes_with(script, each, changed)
                and not _is_of_some(script, each)
            ),
            None,
        )
        if use is not None:
            yield violation_at_node(
                node,
                f"only some ranks change `{min(changed, key=len)}` here, and all of them compute with it (line "
                f"{use.lineno}): the others use what it began with",
                0.75,
            )


def _changed_by(script: Script, call: ast.Call) -> set[str]:
    """Return the names in its function of the modules of which a call changes the parameters."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=name) as held, attr=method):
            made = [each for each in script.names.origins(held) if isinstance(each, ast.Call)]
            if len(made) != 1:
                return set()
            if method == "update_parameters" and script.names.qualified(made[0].func) in AVERAGES:
                return {name}
            cls = next((each for each in _classes(script) if each.name == dotted_name(made[0].func)), None)
            body = [] if cls is None else [each for each in cls.body if isinstance(each, FUNCTIONS)]
            function = next((each for each in body if each.name == method), None)
            found = _changed_in(script, function) if function else set[str]()
            inner = {each.removeprefix("self.") for each in found if each.startswith("self.")}
            return {f"{name}.{each}" for each in inner} | ({name} if inner else set())
        case ast.Name(id=name):
            return {
                given for each, given in _given(script, call) if each in _changed_in(script, _function(script, name))
            }
        case _:
            return set()


def _classes(script: Script) -> list[ast.ClassDef]:
    return nodes_of_kinds(script.source.tree, ast.ClassDef)


def _function(script: Script, name: str) -> Function | None:
    body = script.source.tree.body
    return next((each for each in body if isinstance(each, FUNCTIONS) and each.name == name), None)


def _given(script: Script, call: ast.Call) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a function of the file with the names that a call passes for them."""
    function = _function(script, dotted_name(call.func))
    if function is None:
        return
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    given = match_arguments(names, call.args, call.keywords)
    yield from ((name, dotted_name(value)) for name, value in given.items() if dotted_name(value))


def _changed_in(script: Script, function: Function | None) -> set[str]:
    """Return the modules, by their names in a function, of which it changes the parameters in place."""
    found = set[str]()
    for node in ast.walk(function) if function else ():
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr=name)) if name in IN_PLACE:
                while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
                    target = target.func.value  # p.mul_(0.9).add_(q)
                module = _owner(script, target)
                found |= {dotted_name(module)} if module is not None and dotted_name(module) else set()
            case _:
                pass
    return found


def _computes_with(script: Script, call: ast.Call, modules: set[str]) -> bool:
    """Return whether a call is the forward pass of a module, or of a function of the file that makes one with it."""
    if dotted_name(call.func) in modules or _is_loaded(call, modules):
        return True
    handed = {parameter for parameter, given in _given(script, call) if given in modules}
    function = _function(script, dotted_name(call.func)) if handed else None
    inner = (node for node in ast.walk(function) if isinstance(node, ast.Call)) if function else ()
    return any(dotted_name(each.func) in handed and not _is_of_some(script, each) for each in inner)


def _is_loaded(call: ast.Call, modules: set[str]) -> bool:
    """Return whether a call loads the state of one of the modules into another one."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict"):
        return False
    states = (node.func for given in call.args for node in ast.walk(given) if isinstance(node, ast.Call))
    return any(
        isinstance(each, ast.Attribute) and each.attr == "state_dict" and dotted_name(each.value) in modules
        for each in states
    )


def _is_of_data(test: Key) -> bool:
    """Return whether a condition is one on data of this rank, of which no collective has made one of all."""
    others = any(part.op == "local" and part.args[0] not in (BATCH, RANDOM) for part in parts(test))
    return bool(test.differs_by & LOCAL) and not others and not any(part.op in SAME for part in parts(test))


def _owner(script: Script, target: ast.expr) -> ast.expr | None:
    """Return the module of which a loop goes through the parameters, if the target is one of these."""
    while isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    at: ast.AST | None = target
    while at is not None and not isinstance(at, FUNCTIONS):
        match at:
            case ast.For(target=ast.Name() as name, iter=over) if dotted_name(name) == dotted_name(target):
                return _of_parameters(over)
            case ast.For(target=ast.Tuple(elts=names), iter=ast.Call(func=ast.Name(id="zip"), args=[*over])):
                for name, each in zip(names, over, strict=False):
                    if dotted_name(target) and dotted_name(name) == dotted_name(target):
                        return _of_parameters(each)
            case _:
                pass
        at = script.source.parents.get(at)
    return None


def _of_parameters(over: ast.expr) -> ast.expr | None:
    match over:
        case ast.Call(func=ast.Attribute(value=module, attr="parameters")):
            return module
        case _:
            return None


def _use_by_all(script: Script, module: ast.expr) -> ast.Call | None:
    """Return a call with which all ranks compute with a module that has no wrapper."""
    name = dotted_name(module)
    inside = {
        dotted_name(given)
        for node in nodes_below(script.source.tree)
        if isinstance(node, ast.Call) and script.names.qualified(node.func) in DDP_CLASSES
        if (given := call_argument(node, "module", 0)) is not None
    }
    if not name or name in inside or name.endswith(".module"):
        return None
    for made in script.names.origins(module):
        if isinstance(made, ast.Call) and script.names.qualified(made.func) in DDP_CLASSES:
            return None
    if name.startswith(OWN):
        return _use_of_attribute(script, module, name)
    made = script.names.bindings(module)
    calls = nodes_of_kinds(script.source.tree, ast.Call)
    uses = (
        each
        for each in calls
        if (dotted_name(each.func) == name and script.names.bindings(each.func) == made)
        or (_is_passed(script, each, module, made) and _computes_with(script, each, {name}))
    )
    return next((each for each in uses if made and not _is_of_some(script, each)), None)


def _use_of_attribute(script: Script, module: ast.expr, name: str) -> ast.Call | None:
    """Return a call with which all ranks compute with a module that their object holds, and that is no wrapper."""
    at: ast.AST | None = module
    while at is not None and not isinstance(at, ast.ClassDef):
        at = script.source.parents.get(at)
    nodes = nodes_below(at) if at is not None else []
    held = [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign) and any(dotted_name(target) == name for target in node.targets)
    ]
    if not held or any(
        isinstance(each, ast.Call) and script.names.qualified(each.func) in DDP_CLASSES for each in held
    ):
        return None
    uses = (node for node in nodes if isinstance(node, ast.Call) and dotted_name(node.func) == name)
    return next((each for each in uses if not _is_of_some(script, each)), None)


def _is_passed(script: Script, call: ast.Call, module: ast.expr, made: object) -> bool:
    """Return whether a call hands on a module under the same name."""
    given = (each for each in (*call.args, *(word.value for word in call.keywords)))
    name = dotted_name(module)
    return any(dotted_name(each) == name and script.names.bindings(each) == made for each in given)


def _is_in_function_of_some(script: Script, load: ast.Call, use: ast.Call) -> bool:
    """Return whether a module is loaded and used in one function, which as a whole is called by only some ranks."""
    function = script.names.enclosing_function(load)
    return function is not None and function is script.names.enclosing_function(use) and not _is_of_some(script, load)


def _is_of_some(script: Script, node: ast.AST) -> bool:
    """Return whether a condition on the rank is around a node, in its function."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, FUNCTIONS):
        if isinstance(at, ast.If | ast.IfExp) and script.depends_on_rank(at.test):
            return True
        at = script.source.parents.get(at)
    return False
