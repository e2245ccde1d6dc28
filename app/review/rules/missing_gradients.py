"""DW447: gradients that a program reduces by hand where they are not None, of layers that the data of a rank choose."""

import ast
from collections.abc import Iterator

from ...training_script.model.keys import DIFFERS, LOCAL
from ...training_script.model.library_calls import GENERATORS
from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below, walk
from ...training_script.syntax import last_name
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from .chosen_layers import left_out

FORMS = {"flatten", "view", "reshape", "ravel", "contiguous", "detach", "clone", "float", "to"}
TOGETHER = {"cat", "concat", "_flatten_dense_tensors", "parameters_to_vector", "all_reduce_coalesced"}
COLLECTIONS = ("ModuleDict", "ModuleList")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the reductions under ``grad is not None``, if ranks may use other layers in one step."""
    if not run.distributed or run.function is not None or not script.mentions("all_reduce"):
        return
    tests = [
        node
        for node in nodes_below(script.source.tree)
        if (isinstance(node, ast.If) and _asks_for_gradient(node, script.source.parents.get(node)))
        or (isinstance(node, ast.ListComp | ast.GeneratorExp | ast.If) and _chooses_gradients(script, node))
    ]
    chosen = _chosen_layer(script) if tests else None
    drawn = [
        fact for reach, fact in run.of(*GENERATORS) if fact.result.key.differs_by & LOCAL and script.is_here(reach)
    ]
    if chosen is not None and len(drawn) == 1:
        yield Violation(
            line=drawn[0].site.line,
            column_bytes=drawn[0].site.column,
            end_line=drawn[0].site.end_line,
            message="each rank draws from numbers of its own, which choose a layer (line "
            f"{chosen.lineno}): the ranks reduce the gradients of different ones (line {tests[0].lineno})",
            confidence=0.75,
            related=[RelatedPlace(path=script.source.path, line=tests[0].lineno, message="reduced from here on")],
        )
        return
    for test in tests if chosen is not None else ():
        assert chosen is not None
        yield Violation(
            line=test.lineno,
            column_bytes=test.col_offset + 1,
            end_line=(test.test if isinstance(test, ast.If) else test).end_lineno or test.lineno,
            message="ranks that used other layers in this step have other gradients (the data decide in line "
            f"{chosen.lineno}): they reduce different ones, or different numbers of them",
            confidence=0.75,
            related=[RelatedPlace(path=script.source.path, line=chosen.lineno, message="a layer is chosen here")],
        )


def _chooses_gradients(script: Script, made: ast.ListComp | ast.GeneratorExp | ast.If) -> bool:
    """Return whether the gradients that are not None are put together, and the function reduces them."""
    function = script.names.enclosing_function(made) or script.source.tree
    fills = any(
        isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Store)
        for node in walk(function)
    )
    if isinstance(made, ast.If):
        kept = [
            node.args[0]
            for node in walk(made)
            if isinstance(node, ast.Call) and last_name(node.func) == "append" and len(node.args) == 1
        ]
        chosen = _is_with_gradient(made.test)
    else:
        kept = [made.elt]
        chosen = len(made.generators) == 1 and any(map(_is_with_gradient, made.generators[0].ifs))
    if fills or not (chosen and any(map(_is_gradient_or_parameter, kept)) and _reduces(function)):
        return False
    called = {last_name(node.func) for node in walk(function) if isinstance(node, ast.Call)}
    return bool(called & TOGETHER) or isinstance(script.source.parents.get(made), ast.For)


def _is_gradient_or_parameter(node: ast.expr) -> bool:
    """Return whether an element is a parameter or its gradient, in any form, rather than a number made of it."""
    while not isinstance(node, ast.Name):
        match node:
            case ast.Call(func=ast.Attribute(value=held, attr=name)) if name in FORMS:
                node = held
            case ast.Attribute(value=held, attr="grad" | "data"):
                node = held
            case _:
                return False
    return True


def _is_with_gradient(test: ast.expr) -> bool:
    match test:
        case ast.Compare(left=ast.Attribute(attr="grad"), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.BoolOp(op=ast.And(), values=values):
            return any(map(_is_with_gradient, values))
        case _:
            return False


def _asks_for_gradient(test: ast.If, loop: ast.AST | None) -> bool:
    """Return whether a condition leads the parameters with a gradient to a reduction."""
    match test.test:
        case _ if _is_with_gradient(test.test):
            return _reduces(test)
        case ast.Compare(left=ast.Attribute(attr="grad"), ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return any(isinstance(stmt, ast.Continue) for stmt in test.body) and loop is not None and _reduces(loop)
        case _:
            return False


def _reduces(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Call) and last_name(each.func) == "all_reduce" for each in walk(node))


def _chosen_layer(script: Script) -> ast.expr | None:
    """Return the place in a forward pass at which data of one rank choose a layer."""
    for cls in nodes_below(script.source.tree):
        if not isinstance(cls, ast.ClassDef):
            continue
        held = {
            target.attr
            for node in walk(cls)
            if isinstance(node, ast.Assign) and last_name(node.value) in COLLECTIONS
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }
        forward = next(
            (each for each in cls.body if isinstance(each, ast.FunctionDef) and each.name == "forward"), None
        )
        for skip in left_out(forward) if forward else ():
            if (key := script.evaluated.value(skip.test)) is not None and key.differs_by & DIFFERS:
                return skip.test
        for node in walk(forward) if forward else ():
            match node:
                case ast.Subscript(value=ast.Attribute(attr=name), slice=ast.expr() as index) if name in held:
                    if (key := script.evaluated.value(index)) is not None and key.differs_by & DIFFERS:
                        return node
                case ast.IfExp(test=test) | ast.If(test=test) if _calls_layers(node, _elements_of(forward, held)):
                    if (key := script.evaluated.value(test)) is not None and key.differs_by & DIFFERS:
                        return test
                case _:
                    pass
    return None


def _elements_of(forward: ast.FunctionDef | None, held: set[str]) -> set[str]:
    """Return the names that loops over lists of layers give to a layer."""
    loops = [node for node in walk(forward) if isinstance(node, ast.For)] if forward else []
    over = (
        each for each in loops if any(isinstance(node, ast.Attribute) and node.attr in held for node in walk(each.iter))
    )
    return {node.id for each in over for node in walk(each.target) if isinstance(node, ast.Name)}


def _calls_layers(choice: ast.If | ast.IfExp, elements: set[str]) -> bool:
    """Return whether both sides of a condition do not compute with the same attributes of the model."""

    def layers(side: "list[ast.stmt] | ast.expr") -> set[str]:
        nodes = (node for part in (side if isinstance(side, list) else [side]) for node in walk(part))
        calls = (node.func for node in nodes if isinstance(node, ast.Call))
        return {
            last_name(each)
            for each in calls
            if (isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self")
            or (isinstance(each, ast.Name) and each.id in elements)
        }

    return layers(choice.body) != layers(choice.orelse)
