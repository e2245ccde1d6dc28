"""DW208 and DW231: models that learn next to DDP without it, and copies of a model that are made before DDP."""

import ast
import re
from collections.abc import Iterator

from ...training_script.model.function_steps import Noted
from ...training_script.model.keys import BY_RANK, Key, parts
from ...training_script.model.reach import Reach, Run, argument, together
from ...training_script.model.values import ClassRef, Instance, Value
from ...training_script.syntax import call_argument, dotted_name, last_name
from ...training_script.torch_classes import DDP_CLASSES, is_optimizer
from ..rule_context import Script, Violation
from ..violations import in_function_of, violation_at, violation_at_node
from .replicas import GRADIENT, LAYER, SEED, SYNCHRONISES

SEEDS = re.compile(r"\b(?:torch|cuda|random|np|numpy)\.(?:manual_)?seed|(?<!\.)\b\w*seed\w*\(|fork_rng")
LOAD = ".load_state_dict"
STATE_OF_MODEL = re.compile(r"\.load_state_dict\([\w.]+\.state_dict\(\)\)")
READS_DATA = re.compile(r"\b(?:torch|numpy|np|json|pickle|yaml)\.(?:safe_)?loads?\(|broadcast_buffers")
COPY = ("copy.deepcopy", "copy.copy")
PARAMETER = "torch.nn.Parameter"

READS_OR_WRITES = re.compile(r"\w*(?:load|save|resume|restore)\w*")  # functions that fill a model, or keep its state


def check_outside(script: Script, run: Run) -> Iterator[Violation]:
    """DW208: yield the modules with parameters that an optimizer steps and DDP does not know."""
    wraps = [reach for reach, _ in run.of(*DDP_CLASSES) if reach.several]
    if not wraps or script.mentions(GRADIENT):
        return
    made = [fact for _, fact in run.of(".parameters", ".named_parameters")]
    inner = {value.key for _, fact in run.of(*DDP_CLASSES) if (value := argument(fact, 0, "module"))}
    for reach, fact in _optimizers(run):
        inside = {id(node) for node in ast.walk(fact.node)}
        owners = [each for each in made if id(each.node) in inside and each.owner]
        if script.is_here(reach) and (leaf := _leaf(script, fact)):
            yield violation_at_node(
                leaf,
                f"`{ast.unparse(leaf)}` is a parameter outside of DDP: nothing reduces its gradients, each rank trains "
                "its own",
                0.75,
            )
        if not script.is_here(reach) or not any(each.owner and "ddp" in each.owner.facts for each in made):
            continue
        for each in owners:
            assert each.owner is not None
            outside = not each.owner.facts & {"ddp", "fsdp", "unwrapped", "prepared", "engine"}
            name = dotted_name(each.node.func).rpartition(".")[0]
            if outside and each.owner.key not in inner and has_weights(each.owner) and is_called_alone(script, name):
                yield from violation_at(
                    script,
                    reach._replace(fact=reach.fact._replace(site=_site(reach, each))),
                    f"`{name}` is not in DDP: nothing reduces its gradients, and its copies drift apart",
                    0.8,
                )


def _leaf(script: Script, optimizer: Noted) -> ast.expr | None:
    """Return the tensor with gradients that a program makes for itself and gives to an optimizer in a list."""
    given = call_argument(optimizer.node, "params", 0)
    for each in given.elts if isinstance(given, ast.List | ast.Tuple) else ():
        for made in script.names.origins(each) if isinstance(each, ast.Name | ast.Attribute) else ():
            if not isinstance(made, ast.Call):
                continue
            learns_by_name = any(
                word.arg == "requires_grad" and isinstance(word.value, ast.Constant) and word.value.value is True
                for word in made.keywords
            )
            name = script.names.qualified(made.func)
            if (learns_by_name and name.startswith("torch.")) or (name == PARAMETER and _is_alone(script, made)):
                return each
    return None


def _is_alone(script: Script, made: ast.Call) -> bool:
    """Return whether a parameter is made outside of any class, so that it is no part of a module."""
    at = script.source.parents.get(made)
    while at is not None and not isinstance(at, ast.ClassDef):
        at = script.source.parents.get(at)
    return at is None


def has_weights(module: Value) -> bool:
    """Return whether a module surely has parameters."""
    return learns(module.obj) or (module.key.op == "call" and is_layer(module.key))


def check_copy(script: Script, run: Run) -> Iterator[Violation]:
    """DW231: yield the copies of a model that are made before DDP makes it the same on all ranks."""
    loads = [fact for _, fact in run.of(LOAD) if _state_of(fact) is not None]
    if not (loads or any(run.of(*COPY))):
        return
    text = STATE_OF_MODEL.sub("", script.source.text) if loads else script.source.text
    if "load_state_dict" not in text:
        text = READS_DATA.sub("", text)
    if SYNCHRONISES.search(text):
        return
    seeds = list(run.of(SEED))
    if not seeds if script.mentions(SEEDS, "seed", "fork_rng") else seeds:
        return
    wraps = [(reach, model) for reach, fact in run.of(*DDP_CLASSES) if (model := argument(fact, 0, "module"))]
    for number, each in enumerate(run.reached):
        if each.name not in (*COPY, LOAD) or not isinstance(each.fact, Noted) or not each.several:
            continue
        given = _copied(run, each.fact)
        later = {id(reach) for reach in run.reached[number + 1 :]}
        wrapped = any(
            id(reach) in later and together(each, reach) and given and _is_of(script, each.fact, given, model)
            for reach, model in wraps
        )
        earlier = [fact for at, fact in seeds if id(at) not in later]
        if seeds and not (earlier and any(value.key.differs_by & BY_RANK for value in earlier[-1].values)):
            continue
        if wrapped and given and (learns(given.obj) or is_layer(given.key)):
            why = "each rank has a seed of its own" if seeds else "no seed is set"
            yield from violation_at(
                script,
                in_function_of(each, [reach for reach, _ in wraps]),
                f"this copy of the model is made before DDP sends rank 0's parameters, and {why}: it differs between "
                "ranks",
                0.8,
            )


def _copied(run: Run, fact: Noted) -> Value | None:
    """Return the model that is copied, or of which another one loads the state."""
    if fact.name != LOAD:
        return argument(fact, 0, "x")
    asked = _state_of(fact)
    return next((each.owner for _, each in run.of(".state_dict") if each.node is asked), None)


def _state_of(load: Noted) -> ast.Call | None:
    """Return the call that gives the state of a model to another one: ``b.load_state_dict(a.state_dict())``."""
    given = load.node.args[0] if load.node.args else None
    return given if isinstance(given, ast.Call) and last_name(given.func) == "state_dict" else None


def _is_of(script: Script, copy: Noted, given: Value, model: Value) -> bool:
    """Return whether a copy is one of a model, or of a part of it."""
    at = copy.node.args[0] if copy.node.args else None
    while isinstance(at, ast.Attribute):
        at = at.value
        if script.evaluated.value(at) is model.key:
            return True
    return model.key is given.key


def _optimizers(run: Run) -> Iterator[tuple[Reach, Noted]]:
    for reach in run.reached:
        if isinstance(reach.fact, Noted) and is_optimizer(reach.name):
            yield reach, reach.fact


def _site(reach: Reach, parameters: Noted):
    return parameters.site if parameters.site.path == reach.fact.site.path else reach.fact.site


def learns(obj: object) -> bool:
    """Return whether an object is a module of the program with parameters of its own."""
    if not isinstance(obj, Instance):
        return False
    if not any(name.endswith("nn.Module") for name in obj.cls.library_bases()):
        return False
    return any(_makes_parameters(each) for each in obj.cls.ancestry())


def is_layer(model: Key) -> bool:
    """Return whether a model is a layer of torch with parameters, or layers in a row."""
    layers = (str(part.args[0]) for part in parts(model) if part.op == "call")
    return any(name.startswith("torch.nn.") and LAYER.fullmatch(name.rpartition(".")[2]) for name in layers)


def _makes_parameters(cls: ClassRef) -> bool:
    calls = (node for node in ast.walk(cls.node) if isinstance(node, ast.Call))
    return any(last_name(call.func) == "Parameter" or LAYER.fullmatch(last_name(call.func)) for call in calls)


def is_called_alone(script: Script, name: str) -> bool:
    """Return whether a module is called by its name, and is handed to nothing that may make it part of another."""
    called = False
    for node in ast.walk(script.source.tree):
        if isinstance(node, ast.Call):
            called = called or dotted_name(node.func) == name
            if READS_OR_WRITES.fullmatch(last_name(node.func)):
                continue
            if any(dotted_name(each) == name for each in (*node.args, *(each.value for each in node.keywords))):
                return False
    return called and bool(re.fullmatch(r"[\w.]+", name))
