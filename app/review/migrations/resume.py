"""``--to resume``: the run saves its whole state every few steps, and continues there when it is started again."""

import ast
import re
from collections.abc import Collection
from pathlib import Path

from ...training_script.syntax import Function, call_argument, dotted_name, last_name
from ..patches.torch_names import free_name
from .carried_values import carried_values, reads, unsaved_values
from .ddp_checks import splits_alike
from .facts import Loop, TrainingFacts
from .helper_code import HelperCode, taken_names
from .rewriting import Rewriting
from .saved_parts import saved_parts
from .training_loop import TrainingLoop, training_loop
from .types import Note, Refusal

TEMPLATE = "resume.py.in"
STEPS_BETWEEN = 100
ENGINES = {
    "deepspeed.initialize": "DeepSpeed: use save_checkpoint and load_checkpoint of the engine",
    "accelerate.Accelerator": "Accelerate: use its save_state and load_state",
    "transformers.Trainer": "the Trainer of transformers: call train(resume_from_checkpoint=True)",
    "transformers.Seq2SeqTrainer": "the Trainer of transformers: call train(resume_from_checkpoint=True)",
    "lightning.Fabric": "Fabric: use its save and load",
    "lightning.Trainer": "Lightning: call fit(ckpt_path=...)",
    "pytorch_lightning.Trainer": "Lightning: call fit(ckpt_path=...)",
}
VARIABLES = ("checkpoint", "run_state", "saved_run")
NO_NAME = re.compile(r"[^\w.-]")
SHARDED = {"FullyShardedDataParallel", "ZeroRedundancyOptimizer"}
OWN_RANDOM = {"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"}


def rewrite(text: str, path: str) -> tuple[str, list[Note]]:
    """Return the script that saves and resumes, and the reports on it.

    Raises:
        Refusal: Its position or its state cannot be saved.
    """
    facts = TrainingFacts(text, path)
    _check_before(facts)
    loop = training_loop(facts)
    _check_loaders(facts)
    _check_first_epoch(facts, loop)
    uses_numpy = any(module.partition(".")[0] == "numpy" for module in _imported(facts))
    tags = {tag for tag, is_set in (("numpy", uses_numpy), ("fsdp2", _is_sharded(facts))) if is_set}
    made = Rewriting(facts, HelperCode({TEMPLATE: tags}, {}, taken_names(facts.names)))
    checkpoint = free_name(facts.script, VARIABLES)
    _create(made, loop, checkpoint)
    _pass_on(made, loop, checkpoint)
    _wrap_loops(made, loop, checkpoint)
    _save_values(made, loop, checkpoint)
    _report(made, loop)
    return made.text(), made.reports


# ---- edits


def _create(made: Rewriting, loop: TrainingLoop, checkpoint: str) -> None:
    """Insert the call that makes the checkpoint before the outermost loop."""
    outermost = loop.epochs or loop.batches
    parts = "".join(f", {name}={code}" for name, code in saved_parts(made.facts, outermost))
    path = _path_of_run(made) + ("" if _is_sharded(made.facts) else ".pt")
    made.insert_before(
        outermost, f'{checkpoint} = {made.helpers.name("Checkpoint")}("{path}", every={STEPS_BETWEEN}{parts})'
    )


def _path_of_run(made: Rewriting) -> str:
    """Return a path for the saved run, without its ending, that the script does not name itself."""
    stem = NO_NAME.sub("_", Path(made.source.path).stem)
    names = [f"{stem}_{each}" for each in VARIABLES]
    return next((name for name in names if name not in made.source.text), names[-1])


def _pass_on(made: Rewriting, loop: TrainingLoop, checkpoint: str) -> None:
    """Pass the checkpoint to the function with the batch loop."""
    for function, call in loop.hops:
        made.add_argument(call, f"{checkpoint}={checkpoint}")
        _add_parameter(made, function, checkpoint)


def _add_parameter(made: Rewriting, function: Function, name: str) -> None:
    spec = function.args
    last: list[ast.expr | ast.arg] = [
        *spec.posonlyargs,
        *spec.args,
        *spec.defaults,
        *spec.kwonlyargs,
        *(each for each in spec.kw_defaults if each),
        *([spec.vararg] if spec.vararg else []),
    ]
    if not last:
        raise Refusal(function.lineno, f"{function.name} has no parameter: give it one, for example the loader")
    end = max(last, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    star = ", *" if spec.defaults and not (spec.vararg or spec.kwonlyargs) else ""
    made.insert_behind(end, f"{star}, {name}")


def _wrap_loops(made: Rewriting, loop: TrainingLoop, checkpoint: str) -> None:
    if isinstance(loop.epochs, ast.For):
        made.surround(loop.epochs.iter, f"{checkpoint}.epochs(", ")")
    items = loop.batches.iter
    if isinstance(items, ast.Call) and dotted_name(items.func) == "enumerate" and items.args:
        start = call_argument(items, "start", 1)
        made.surround(items.args[0], f"{checkpoint}.batches(", ")")
        if start is None:
            made.add_argument(items, f"{checkpoint}.batch")
        else:
            made.surround(start, "", f" + {checkpoint}.batch")
    else:
        made.surround(items, f"{checkpoint}.batches(", ")")


def _save_values(made: Rewriting, loop: TrainingLoop, checkpoint: str) -> None:
    """Insert the calls that save and restore what the loops carry over their iterations."""
    inner = carried_values(made.facts, loop.batches)
    at_batches = inner
    if loop.epochs is not None:
        outer = carried_values(made.facts, loop.epochs)
        leads = _statement_in(made, loop.hops[-1].call if loop.hops else loop.batches, loop.epochs)
        early = [name for name in outer if name in reads(loop.epochs.body[: loop.epochs.body.index(leads)])]
        late = [name for name in outer if name not in early]
        if early:
            made.insert_before(loop.epochs.body[0], _restore(checkpoint, early))
        if not loop.hops:
            at_batches = [*dict.fromkeys([*late, *inner])]
        elif late := [name for name in late if not (name.startswith("self.") and name in inner)]:
            made.insert_before(leads, _restore(checkpoint, late, of_epochs={_key(name) for name in inner}))
    if at_batches:
        made.insert_before(loop.batches, _restore(checkpoint, at_batches))
    given = ", ".join(f"{_key(name)}={name}" for name in inner)
    made.insert_after(loop.batches.body[-1], f"{checkpoint}.save({given})")


def _statement_in(made: Rewriting, node: ast.AST, loop: Loop) -> ast.stmt:
    """Return the statement of the body of a loop that holds a node."""
    while made.source.parents[node] is not loop:
        node = made.source.parents[node]
    assert isinstance(node, ast.stmt)
    return node


def _restore(checkpoint: str, names: list[str], of_epochs: Collection[str] = ()) -> str:
    """Return the statement that restores variables; those of both functions of the loops get keys of their own."""
    keys = (f"{_key(name)}_of_epochs" if _key(name) in of_epochs else _key(name) for name in names)
    given = ", ".join(f"{key}={name}" for key, name in zip(keys, names, strict=True))
    return f"[{', '.join(names)}] = {checkpoint}.restore({given})"


def _key(name: str) -> str:
    return name.rpartition(".")[2]


# ---- checks and reports


def _check_before(facts: TrainingFacts) -> None:
    for call in facts.calls:
        if why := ENGINES.get(facts.named(call)):
            raise Refusal(call.lineno, f"{why}; it saves and restores the state itself")
        if last_name(call.func) in SHARDED:
            raise Refusal(call.lineno, f"{last_name(call.func)}: each rank has a part of the state only")
        if last_name(call.func) == "register_step_post_hook":
            raise Refusal(call.lineno, "it saves and resumes already")
    if _is_sharded(facts) and len(facts.models) > 1:
        raise Refusal(facts.models[1].lineno, "several models, of which one is sharded: save them by hand")
    _ = facts.backward


def _is_sharded(facts: TrainingFacts) -> bool:
    """Return whether the model is sharded by FSDP2."""
    return any(last_name(call.func) == "fully_shard" for call in facts.calls)


def _check_loaders(facts: TrainingFacts) -> None:
    for loader in facts.training_loaders:
        data = call_argument(loader, "dataset", 0)
        for leaf in facts.names.origins(data) if data is not None else []:
            owner = facts.names.class_of(leaf)
            if owner and any(facts.names.qualified(base).endswith("IterableDataset") for base in owner.bases):
                raise Refusal(loader.lineno, "an IterableDataset: its position cannot be restored from outside")
        for name, place in (("sampler", 3), ("batch_sampler", 4)):
            given = call_argument(loader, name, place)
            owners = (facts.names.class_of(leaf) for leaf in facts.names.origins(given)) if given else ()
            if any(facts.named(call) in OWN_RANDOM for owner in owners if owner for call in _calls_in(owner)):
                raise Refusal(loader.lineno, "a sampler with random numbers of its own: their state is not known")


def _check_first_epoch(facts: TrainingFacts, loop: TrainingLoop) -> None:
    """Refuse epochs that begin where a checkpoint of the script ends: the saved run counts them from its start."""
    begin = [*ast.walk(loop.epochs.iter)] if isinstance(loop.epochs, ast.For) else []
    for node in begin:
        bindings = facts.names.bindings(node) if isinstance(node, (ast.Name, ast.Attribute)) else []
        for value in (each.value for each in bindings if each.value is not None):
            loads = (leaf for part in ast.walk(value) for leaf in _origins(facts, part))
            if any(facts.named(leaf) == "torch.load" for leaf in loads):
                raise Refusal(value.lineno, "the first epoch comes from a checkpoint of its own: leave that out first")


def _origins(facts: TrainingFacts, node: ast.AST) -> list[ast.Call]:
    leaves = facts.names.origins(node) if isinstance(node, (ast.Name, ast.Call)) else []
    return [leaf for leaf in leaves if isinstance(leaf, ast.Call)]


def _calls_in(node: ast.AST) -> list[ast.Call]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


def _report(made: Rewriting, loop: TrainingLoop) -> None:
    facts = made.facts
    for meter in unsaved_values(facts, loop.epochs or loop.batches):
        made.report(meter, f"what {ast.unparse(meter)} has collected is not saved: a resumed run starts it empty")
    for call in facts.calls:
        if facts.named(call) in OWN_RANDOM:
            made.report(call, "the state of these random numbers is not saved: a resumed run draws them from the start")
        elif last_name(call.func) == "random_split" and not splits_alike(facts, call):
            made.report(call, "random_split: seed it, or a resumed run trains on other samples")
        elif facts.named(call) == "torch.load":
            made.report(call, "a checkpoint of its own: the saved run is loaded after it, and replaces what it loaded")


def _imported(facts: TrainingFacts) -> set[str]:
    modules: set[str] = set()
    for node in facts.nodes:
        if isinstance(node, ast.Import):
            modules |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    return modules
