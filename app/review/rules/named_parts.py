"""DW467: names by which a call finds parts of a model or of a checkpoint, and which these do not have."""

import ast
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.nodes import nodes_below
from ...training_script.syntax import call_argument, last_name
from ..origins import origins_at
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import at_node, violation_at

PREFIX = "torch.distributed."
PLAN = (f"{PREFIX}tensor.parallel.parallelize_module", f"{PREFIX}tensor.parallel.api.parallelize_module")
SAVES = (f"{PREFIX}checkpoint.save", f"{PREFIX}checkpoint.async_save")
LOAD = f"{PREFIX}checkpoint.load"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """DW467: yield the plans for layers that a model lacks, and the keys that a checkpoint lacks."""
    yield from _plans(script, run)
    saves = [fact for _, fact in run.of(*SAVES)]
    for reach, fact in run.of(LOAD):
        path = fact.named.get("checkpoint_id")
        if path is None or not script.is_here(reach) or reach.unsure or reach.attempted:
            continue
        same = [each for each in saves if (at := each.named.get("checkpoint_id")) and at.key is path.key]
        held = [_keys(script, call_argument(each.node, "state_dict", 0)) for each in same]
        wanted = _keys(script, call_argument(fact.node, "state_dict", 0))
        known = {name for each in held if each is not None for name in each}
        missing = sorted((wanted or set()) - known)
        if held and None not in held and missing:
            yield from violation_at(
                script,
                reach,
                f"the checkpoint has no `{missing[0]}`: load raises an error for what is missing",
                0.85,
                related=[RelatedPlace(path=each.site.path, line=each.site.line, message="saved here") for each in same],
            )


def _keys(script: Script, given: ast.expr | None) -> set[str] | None:
    """Return the keys of a dict that is written out, None if they are not all known."""
    made = origins_at(script, given) if given is not None else []
    found = set[str]()
    for each in made:
        if not isinstance(each, ast.Dict):
            return None
        names = [key.value if isinstance(key, ast.Constant) else None for key in each.keys]
        if not all(isinstance(name, str) for name in names):
            return None
        found |= {str(name) for name in names}
    if isinstance(given, ast.Name) and _is_changed(script, given):
        return None
    return found if made else None


def _is_changed(script: Script, name: ast.Name) -> bool:
    """Return whether keys of a dict are set or removed."""
    around = script.names.enclosing_function(name) or script.source.tree
    for node in ast.walk(around):
        match node:
            case ast.Subscript(value=ast.Name(id=held), ctx=ast.Store() | ast.Del()) if held == name.id:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="update" | "pop" | "setdefault")):
                if held == name.id:
                    return True
            case _:
                pass
    return False


def _plans(script: Script, run: Run) -> Iterator[Violation]:
    for reach, fact in run.of(*PLAN):
        plan, model = call_argument(fact.node, "parallelize_plan", 2), call_argument(fact.node, "module", 0)
        if plan is None or model is None or not script.is_here(reach):
            continue
        owners = [
            script.names.class_of(each) if isinstance(each, ast.Call) else None for each in origins_at(script, model)
        ]
        if len(owners) != 1 or owners[0] is None:
            continue
        layers = _layers(script, owners[0])
        for name in sorted(_keys(script, plan) or ()) if layers else ():
            first = name.partition(".")[0]
            if first and "*" not in name and "?" not in name and first not in layers:
                yield from violation_at(
                    script,
                    at_node(script, reach, _place(script, plan, name)),
                    f"the model has no layer `{first}`: parallelize_module leaves it out, and the parts do not fit",
                    0.85,
                )


def _layers(script: Script, owner: ast.ClassDef) -> set[str]:
    """Return the attributes that a class sets on its objects; none if a base class of another file may set more."""
    if any(last_name(base) != "Module" for base in owner.bases):
        return set()
    found = set[str]()
    for node in nodes_below(owner):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
            case (
                ast.Call(func=ast.Attribute(attr="add_module" | "register_module" | "setattr"))
                | ast.Call(func=ast.Name(id="setattr"))
            ):
                return set()
            case _:
                pass
    return found


def _place(script: Script, plan: ast.expr, name: str) -> ast.expr:
    """Return the key of a plan as it is written."""
    for made in origins_at(script, plan):
        for key in made.keys if isinstance(made, ast.Dict) else ():
            if isinstance(key, ast.Constant) and key.value == name:
                return key
    return plan
