"""Refusals of a migration to DDP, and reports on what behaves differently afterwards."""

import ast
import re

from ...training_script.syntax import call_argument, dotted_name, last_name
from .batch_coupling import check_coupling
from .facts import TrainingFacts
from .imported_code import Definition, ImportedCode
from .losses import creation, is_model_call, is_sum, loss_sources, option, returned_sources
from .rewriting import Rewriting
from .types import Refusal

ALREADY = {
    "torch.distributed.init_process_group": "it sets up a process group already",
    "torch.multiprocessing.spawn": "it starts processes itself",
    "deepspeed.initialize": "DeepSpeed distributes it already",
    "accelerate.Accelerator": "Accelerate distributes it already",
    "transformers.Trainer": "the Trainer of transformers distributes it already",
    "lightning.Fabric": "Fabric distributes it already",
}
LIGHTNING = re.compile(r"(?:pytorch_)?lightning(?:\.pytorch)?\.(?:Trainer|LightningModule)")
SUM = "the loss is a sum over samples, no mean: DDP divides it by the number of ranks"
NORMALISES = "BatchNorm: each rank normalises with the statistics of its own part of the batch"
DROPS = "dropout: the ranks draw other masks than one process does"
BATCH_NORM = re.compile(r"(?:Sync)?BatchNorm\d?d?|LazyBatchNorm\dd")
DROPOUT = re.compile(r"(?:Alpha|Feature)?Dropout\d?d?")


def check_before(facts: TrainingFacts) -> None:
    """Refuse what a migration cannot keep.

    Raises:
        Refusal: With the line.
    """
    _check_not_distributed(facts)
    steps = list(facts.optimizer_steps.items())
    if len(steps) > 1:
        (first, at), (second, call) = steps[:2]
        raise Refusal(
            call.lineno, f"several optimizers ({first} at line {at.lineno}, {second} here): each needs its own plan"
        )
    if len(facts.models) > 1:
        names = " and ".join(ast.unparse(each) for each in facts.models[:2])
        raise Refusal(facts.models[1].lineno, f"the optimizer trains several models ({names}): make them one module")
    for call in facts.optimizers:
        if last_name(call.func) == "LBFGS":
            raise Refusal(call.lineno, "LBFGS repeats the step in a closure: ranks could take different steps")
    _ = facts.model, facts.batch_loop
    _check_devices(facts)
    _check_loaders(facts)
    _check_forward(facts)
    _check_loss(facts)
    check_coupling(facts)


def report_changes(made: Rewriting) -> None:
    """Report what behaves differently with several ranks."""
    facts = made.facts
    for call in facts.calls:
        name = last_name(call.func)
        if BATCH_NORM.fullmatch(name) and "Sync" not in name:
            made.report(call, NORMALISES)
        elif DROPOUT.fullmatch(name) or facts.named(call) == "torch.nn.functional.dropout":
            made.report(call, DROPS)
        elif name == "random_split" and not splits_alike(facts, call):
            made.report(call, "random_split: seed it, or each rank splits the data differently")
        elif option(call, "download") is True:
            made.report(call, "every rank downloads this: do it once before the job starts")
        elif name in ("SummaryWriter", "FileHandler") or (name == "basicConfig" and option(call, "filename")):
            made.report(call, "every rank writes this log: create it on rank 0 only")
        elif name == "deepcopy" and call.args and facts.is_model(call.args[0]):
            made.report(call, "a copy of the model: take it from the model before it is wrapped")
    for source in loss_sources(facts):
        module = creation(facts, source) or source
        if any(call_argument(module, each) is not None for each in ("weight", "ignore_index", "pos_weight")):
            made.report(
                module,
                "this loss is a mean over weights or tokens: each rank's mean counts alike, however many it has",
            )
    _report_imported(made)


def _report_imported(made: Rewriting) -> None:
    """Report what the model gets from other files, and losses that are not read."""
    facts, imported = made.facts, ImportedCode(made.facts)
    for root in (each for each in facts.model_roots if isinstance(each, ast.Call)):
        layers: dict[str, str] = {}
        for each in imported.used_by(root.func):
            for call in (node for node in ast.walk(each.node) if isinstance(node, ast.Call)):
                name = last_name(call.func)
                if BATCH_NORM.fullmatch(name) and "Sync" not in name:
                    layers.setdefault(NORMALISES, each.place(call))
                elif DROPOUT.fullmatch(name):
                    layers.setdefault(DROPS, each.place(call))
        for message, place in layers.items():
            made.report(root, f"{message} ({place})")
    for source in loss_sources(facts):
        called = (creation(facts, source) or source).func
        name = next(filter(None, map(facts.names.qualified, (called, *_names_for(facts, called)))), "")
        is_unknown = bool(name) and not name.startswith("torch.") and not is_model_call(facts, source)
        if is_unknown and imported.definition(called) is None:
            made.report(source, f"{name} is not read: the result is the same only if it is a mean over samples")


def _names_for(facts: TrainingFacts, called: ast.expr) -> list[ast.expr]:
    return [each for each in facts.names.origins(called) if isinstance(each, (ast.Name, ast.Attribute))]


def _check_not_distributed(facts: TrainingFacts) -> None:
    for call in facts.calls:
        name = facts.named(call)
        why = ALREADY.get(name) or ("Lightning distributes it already" if LIGHTNING.fullmatch(name) else "")
        if why:
            raise Refusal(call.lineno, why)


def _check_devices(facts: TrainingFacts) -> None:
    for call in facts.calls:
        target = call_argument(call, "device", 0) if last_name(call.func) == "to" else None
        for leaf in facts.names.origins(target) if target is not None and dotted_name(target) else []:
            if isinstance(leaf, ast.Constant) and isinstance(leaf.value, int):
                raise Refusal(leaf.lineno, "the device is a number here: make it a torch.device that is chosen once")


def _check_loaders(facts: TrainingFacts) -> None:
    for loader in facts.training_loaders:
        for name, place in (("sampler", 3), ("batch_sampler", 4)):
            given = call_argument(loader, name, place)
            if given is not None and not (isinstance(given, ast.Constant) and given.value is None):
                raise Refusal(given.lineno, f"the training loader has its own {name}: give each rank its part by hand")
        data = call_argument(loader, "dataset", 0)
        for leaf in facts.names.origins(data) if data is not None else []:
            if _is_iterable_dataset(facts, leaf):
                raise Refusal(loader.lineno, "an IterableDataset: it has to give each rank its own samples itself")


def _is_iterable_dataset(facts: TrainingFacts, leaf: ast.AST) -> bool:
    owner = facts.names.class_of(leaf)
    bases = [facts.names.qualified(base) for base in owner.bases] if owner else []
    return any(base.endswith("IterableDataset") for base in bases)


def _check_forward(facts: TrainingFacts) -> None:
    """Refuse a training step that calls a method of the model instead of the model: DDP reduces no gradients then."""
    forwards = [node for node in facts.in_training if isinstance(node, ast.Call) and is_model_call(facts, node)]
    if forwards or any(_calls_model(facts, source) for source in loss_sources(facts)):
        return
    for node in facts.in_training:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if facts.is_model(value) and attr not in (
                *("train", "eval", "zero_grad", "parameters", "to", "forward", "named_parameters"),
            ):
                raise Refusal(node.lineno, f"the training step calls .{attr}() of the model, which DDP does not follow")
            case _:
                pass
    raise Refusal(
        facts.backward.lineno, "the forward pass of this backward pass is not found: call the model by its name"
    )


def _calls_model(facts: TrainingFacts, source: ast.Call) -> bool:
    """Return whether the function that computes the loss calls the model."""
    around = facts.names.enclosing_function(source) or source
    return any(isinstance(node, ast.Call) and is_model_call(facts, node) for node in ast.walk(around))


def _check_loss(facts: TrainingFacts) -> None:
    imported = ImportedCode(facts)
    for source in loss_sources(facts):
        module = creation(facts, source)
        if (module is not None and option(module, "reduction") == "sum") or is_sum(source):
            at = module if module is not None and option(module, "reduction") == "sum" else source
            raise Refusal(at.lineno, SUM)
        definition = imported.definition((module or source).func)
        if definition and (place := _place_of_sum(definition)):
            raise Refusal(source.lineno, f"{SUM} ({place})")
        if is_model_call(facts, source):
            _check_loss_of_model(facts, imported)


def _place_of_sum(loss: Definition) -> str:
    """Return where a loss of another file sums over samples, or "" if it does not."""
    found = returned_sources(loss.names, loss.run) if loss.run else []
    inside = (node for node in ast.walk(loss.node) if isinstance(node, ast.Call))
    found = [each for each in found if is_sum(each)] + [each for each in inside if option(each, "reduction") == "sum"]
    return loss.place(found[0]) if found else ""


def _check_loss_of_model(facts: TrainingFacts, imported: ImportedCode) -> None:
    for made in (each for each in facts.model_roots if isinstance(each, ast.Call)):
        owner = facts.names.class_of(made)
        other = imported.definition(made.func) if owner is None else None
        inside = owner or (other.node if other else None)
        for node in ast.walk(inside) if inside else []:
            if isinstance(node, ast.Call) and option(node, "reduction") == "sum":
                line, place = (made.lineno, f" ({other.place(node)})") if other else (node.lineno, "")
                raise Refusal(line, f"{SUM}{place}")


def splits_alike(facts: TrainingFacts, call: ast.Call) -> bool:
    """Return whether ``random_split`` gives the same in every process: by a generator, or by torch's seed."""
    return call_argument(call, "generator", 2) is not None or any(
        facts.named(call) in ("torch.manual_seed", "torch.random.manual_seed")
        or last_name(call.func) in ("seed_everything", "set_seed")
        for call in facts.calls
    )
