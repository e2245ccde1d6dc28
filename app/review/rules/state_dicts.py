"""DW219: a state that is saved from a model with DDP around it and loaded into one without, or the reverse."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import Key, parts
from ...training_script.model.library_calls import TRANSPARENT_METHODS
from ...training_script.model.reach import Reach, Run, alternatives, argument
from ...training_script.model.values import Instance, Value
from ...training_script.nodes import node_at
from ...training_script.syntax import last_name
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.use_inner_model import inner_model
from ..rule_context import Patch, Script, Violation, no_patch
from ..types import RelatedPlace
from ..violations import in_function_of, violation_at

FILE_NAME = re.compile(r"([A-Za-z][\w-]{3,})(?:\.\w+)?")
FIX, SAVE = "load-into-inner-model", "save-inner-model"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the loads of states whose names do not fit the model."""
    models = {fact.result.key: model for _, fact in run.of(*DDP_CLASSES) if (model := argument(fact, 0, "module"))}
    wraps = {wrapper: model.key for wrapper, model in models.items()}
    if not wraps:
        return
    kinds = {kind for model in models.values() if (kind := _kind(script, model))}
    saves = list(run.of("torch.save"))
    written = {part for _, fact in saves if (state := argument(fact, 0, "obj")) for part in parts(state.key)}
    states = [(reach, fact) for reach, fact in run.of(".state_dict") if fact.result.key in written]
    saved = {_is_wrapped(fact, reach, wraps) for reach, fact in states} - {None}
    if len(saved) != 1:
        return
    saving_places = [_place(fact, "the state is taken from the model here") for _, fact in states]
    written_to = [path for _, fact in saves if (path := argument(fact, 1, "f"))]
    loads = {fact.result.key for _, fact in run.of("torch.load") if _is_one_of(argument(fact, 0, "f"), written_to)}
    targets = [
        (reach, fact, _is_target_wrapped(script, (reach, fact), wraps, kinds))
        for reach, fact in run.of(".load_state_dict")
    ]
    for reach, fact, wrapped in targets:
        read = argument(fact, 0, "state_dict")
        if read is None or wrapped is None or wrapped in saved or any(other in saved for _, _, other in targets):
            continue
        if _has_names_of(read.key, loads):
            saving, name = ("without", "begins with module.") if wrapped else ("with", "lacks the prefix module.")
            yield from violation_at(
                script,
                reach if script.is_here(reach) else in_function_of(reach, [each for each, _ in run.of(*DDP_CLASSES)]),
                f"this state is saved {saving} DDP around the model; here each name of the model {name}",
                0.75,
                related=[_place(fact, "the state is loaded here"), *saving_places],
                patch=_patch(script, reach, fact, states, wrapped),
            )


def _has_names_of(read: Key, loads: set[Key]) -> bool:
    """Return whether a state is one that was loaded, or a part of it, under the same names."""
    match read.op, read.args:
        case _ if read in loads:
            return True
        case "item" | "attribute", (Key() as held, *_):
            return _has_names_of(held, loads)
        case "if" | "one of", args:
            return any(_has_names_of(each, loads) for each in args if isinstance(each, Key))
        case "built", (_, Key() as over, *_, Key(op="item", args=(Key(op="element", args=(of, *_)), place)), _):
            return of is over and place.is_constant and place.value == 0 and _has_names_of(over, loads)
        case _:
            return False


def _place(fact: Noted, message: str) -> RelatedPlace:
    return RelatedPlace(path=fact.site.path, line=fact.site.line, message=message)


def _is_wrapped(fact: Noted, reach: Reach, wraps: dict[Key, Key]) -> bool | None:
    """Return whether the model of a call has DDP around it, as far as some run does; None for another object."""
    if fact.owner is None:
        return None
    may_be = list(alternatives(fact.owner.key, reach.conditions))
    inner = any(each.op == "attribute" and each.args[1] == "module" and _is_one(each.args[0], wraps) for each in may_be)
    if inner:
        return False
    if any(each in wraps for each in may_be):
        return True
    return False if any(each in alternatives(model) for each in may_be for model in wraps.values()) else None


def _is_target_wrapped(
    script: Script, load: tuple[Reach, Noted], wraps: dict[Key, Key], kinds: set[object]
) -> bool | None:
    """Return whether the model that is loaded into has DDP around it: a second one of the same kind has not."""
    reach, fact = load
    wrapped = _is_wrapped(fact, reach, wraps)
    is_plain = fact.owner is not None and not fact.owner.facts and _kind(script, fact.owner) in kinds
    return False if wrapped is None and is_plain else wrapped


def _kind(script: Script, model: Value) -> object:
    """Return the class of a model, or the name of the function that makes it; None if it is not known."""
    if isinstance(model.obj, Instance):
        return model.obj.cls
    match model.key.op, model.key.args:
        case "call", (str() as name, *_):
            return name
        case "at", (path, line, column) if path == script.source.path:
            made = node_at(script.source.tree, line, column, ast.Call)
            while isinstance(made, ast.Call) and last_name(made.func) in TRANSPARENT_METHODS:
                made = made.func.value if isinstance(made.func, ast.Attribute) else None
            return (script.names.qualified(made.func) or None) if isinstance(made, ast.Call) else None
        case _:
            return None


def _is_one_of(path: Value | None, written: list[Value]) -> bool:
    """Return whether a path is one that the program writes, or has a name in common with it."""
    if path is None:
        return False
    return any(path.key is each.key or _names(path) & _names(each) for each in written)


def _is_one(key: Key, wraps: dict[Key, Key]) -> bool:
    return any(each in wraps for each in alternatives(key))


def _names(path: Value) -> set[str]:
    """Return the names of files and directories in a path, without their endings."""
    constants = (each.value for each in parts(path.key) if each.is_constant)
    return {found[1] for text in constants if isinstance(text, str) for found in FILE_NAME.finditer(text)}


def _patch(
    script: Script, reach: Reach, load: Noted, states: list[tuple[Reach, Noted]], wrapped: bool
) -> Callable[[], Patch] | None:
    """Return the patch of the load into a model with DDP around it, or else of the place that takes its state."""
    if wrapped:
        why = "save and load the state of the same model: model.module where DDP is around it"
        return partial(_of_inner, script, load, FIX, why) if script.is_here(reach) else None
    nodes = {id(fact.node): fact for taken, fact in states if script.is_here(taken)}
    why = "save the state of model.module"
    return partial(_of_inner, script, *nodes.values(), SAVE, why) if len(nodes) == 1 == len(states) else None


def _of_inner(script: Script, fact: Noted, id_: str, why: str) -> Patch:
    """Return the patch that takes or loads the state of the model inside DDP."""
    func = fact.node.func
    model = func.value if isinstance(func, ast.Attribute) else None
    code = inner_model(script, model) if isinstance(model, ast.Name | ast.Attribute) else ""
    if model is None or not code:
        return no_patch(id_, why)
    reason = "the names in files of earlier runs are the others"
    return Patch(id=id_, safety="unsafe", why_unsafe=reason, edits=[script.source.replace(model, code)])
