"""Give each rank its part of every training batch; the batch of all ranks together stays as large."""

import ast
from collections.abc import Iterator

from ...training_script.syntax import FUNCTIONS, call_argument, dotted_name, last_name
from .losses import computed_names, is_model_call, loss_sources
from .origins import without_iterators
from .rewriting import Rewriting
from .types import Refusal

DATA = ("train_data", "training_data", "data_of_ranks")


def share_batches(made: Rewriting) -> None:
    """Share the batches of the training loaders; without a loader, those that the training loop draws."""
    loaders = made.facts.training_loaders
    for loader in loaders:
        if any(keyword.arg is None for keyword in loader.keywords):
            _share_loader_with_options(made, loader)
        else:
            _share_loader(made, loader)
    if not loaders:
        _share_drawn_batches(made)
    for node in made.facts.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            _keep_length(made, node)


def _keep_length(made: Rewriting, node: ast.Attribute) -> None:
    """Let ``loader.batch_size`` and ``len(loader.sampler)`` be those of all ranks."""
    if node.attr not in ("batch_size", "sampler") or not dotted_name(node.value):
        return
    if not any(loader in made.facts.training_loaders for loader in made.facts.loaders_of(node.value)):
        return
    above = made.source.parents[node]
    if node.attr == "batch_size":
        made.surround(node, "(", f" * {made.helpers.name('dist')}.get_world_size())")
    elif isinstance(above, ast.Call) and dotted_name(above.func) == "len":
        made.replace(node, f"{made.source.code(node.value)}.dataset")


def _share_loader(made: Rewriting, loader: ast.Call) -> None:
    source, helpers = made.source, made.helpers
    size = call_argument(loader, "batch_size", 1)
    if size is None or (isinstance(size, ast.Constant) and size.value == 1):
        raise Refusal(loader.lineno, "the training batch is one sample, which cannot be divided between ranks")
    made.surround(size, helpers.name("per_rank") + "(", ")")
    data = _named_dataset(made, loader)
    shuffle = call_argument(loader, "shuffle", 2)
    drop_last = call_argument(loader, "drop_last", 8)
    options = f"shuffle={source.code(shuffle) if shuffle is not None else 'False'}"
    if drop_last is not None:
        options += f", drop_last={source.code(drop_last)}"
    sampler = f"sampler={helpers.name('DistributedSampler')}({data}, {options})"
    keyword = next((each for each in loader.keywords if each.arg == "shuffle"), None)
    if keyword is not None:
        made.replace_argument(keyword, sampler)
    elif shuffle is not None:
        raise Refusal(shuffle.lineno, "shuffle of the training loader is given by position: give it by name")
    else:
        made.add_argument(loader, sampler)


def _share_loader_with_options(made: Rewriting, loader: ast.Call) -> None:
    """Share a loader whose options are in a mapping (``**options``)."""
    mappings = [keyword.value for keyword in loader.keywords if keyword.arg is None]
    named = [keyword.arg for keyword in loader.keywords if keyword.arg]
    if "batch_size" in named and "shuffle" in named:
        _share_loader(made, loader)
        return
    if len(mappings) != 1 or {"batch_size", "shuffle"} & {*named} or len(loader.args) > 1:
        raise Refusal(loader.lineno, "the options of the training loader are in several places: give them all by name")
    data = _named_dataset(made, loader)
    made.helpers.name("DistributedSampler")
    made.surround(mappings[0], f"{made.helpers.name('options_of_rank')}({data}, ", ")")


def _named_dataset(made: Rewriting, loader: ast.Call) -> str:
    """Return the name of the dataset of a loader; one without a name gets one."""
    data = call_argument(loader, "dataset", 0)
    if data is None:
        raise Refusal(loader.lineno, "the dataset of the training loader is not known")
    if dotted_name(data):
        return made.source.code(data)
    taken = {node.id for node in made.facts.nodes if isinstance(node, ast.Name)}
    name = next(each for each in (*DATA, *(f"{DATA[0]}_{n}" for n in range(99))) if each not in taken)
    stmt = made.source.statement_of(loader)
    if not made.source.alone(stmt) or not isinstance(stmt, (ast.Assign, ast.AnnAssign, ast.Return)):
        raise Refusal(loader.lineno, "the dataset of the training loader has no name: assign it first")
    made.insert_before(stmt, f"{name} = {made.source.one_line(data)}")
    made.replace(data, name)
    return name


def _share_drawn_batches(made: Rewriting) -> None:
    """Share batches that every rank draws alike, behind the statement that draws them or where they are used."""
    facts = made.facts
    loop = facts.batch_loop
    if isinstance(loop, (ast.For, ast.AsyncFor)) and not counts(loop):
        raise Refusal(loop.lineno, "what this loop reads is no DataLoader of this file: make the loader here")
    computed = computed_names(facts)
    for call in _step_calls(made):
        if is_model_call(facts, call) and any(name.id in computed for name in _names_given(call)):
            raise Refusal(call.lineno, "the model gets a state that it has computed before: divide it by hand")
    given = (use for call in _step_calls(made) for use in _names_given(call))
    uses = [*dict.fromkeys(name for use in given for name in _given_to(made, use, computed))]
    if not uses:
        raise Refusal(facts.batch_loop.lineno, "the batches of this loop are not found: use a DataLoader")
    batch = {name.id for name in uses}
    inserted: set[tuple[ast.AST, str]] = set()
    for use in uses:
        bindings = facts.names.bindings(use)
        inside = [each.at for each in bindings if each.at in facts.in_training and isinstance(each.at, ast.Assign)]
        if not inside:
            made.surround(use, made.helpers.name("share_of_rank") + "(", ")")
            continue
        for stmt in (each.at for each in bindings):
            if not isinstance(stmt, ast.Assign):
                raise Refusal(use.lineno, f"how {use.id} gets its batches is not followed: use a DataLoader")
            if _derives_from(stmt, batch) or (stmt, use.id) in inserted:
                continue
            inserted.add((stmt, use.id))
            made.insert_after(stmt, f"{use.id} = {made.helpers.name('share_of_rank')}({use.id})")
    message = "every rank draws the whole batch and trains on its part of the first dimension: seed all ranks alike"
    made.report(facts.batch_loop, message)


def _given_to(made: Rewriting, use: ast.Name, computed: set[str], depth: int = 5) -> Iterator[ast.Name]:
    """Yield the name of a batch in the training step: for a parameter, what the calls of its function give it."""
    names = made.facts.names
    if use.id in computed:
        return
    if not any(binding.kind == "param" for binding in names.bindings(use)):
        yield use
        return
    function = names.enclosing_function(use)
    calls = [given for _, given in names.arguments.get(function, [])] if isinstance(function, FUNCTIONS) else []
    if not calls or not depth or any(use.id not in given for given in calls):
        raise Refusal(use.lineno, f"how {use.id} gets its batches is not followed: use a DataLoader")
    for given in calls:
        for node in _names_in(given[use.id]):
            yield from _given_to(made, node, computed, depth - 1)


def counts(loop: ast.For | ast.AsyncFor) -> bool:
    """Return whether a loop counts steps or batches."""
    inner = without_iterators(loop.iter)
    return isinstance(inner, ast.Call) and last_name(inner.func) in (
        "range",
        "trange",
        "count",
        "arange",
        "split",
        "chunk",
    )


def _step_calls(made: Rewriting) -> list[ast.Call]:
    facts = made.facts
    forwards = [node for node in facts.in_training if isinstance(node, ast.Call) and is_model_call(facts, node)]
    return [*dict.fromkeys([*forwards, *(each for each in loss_sources(facts) if each in facts.in_training)])]


def _names_given(call: ast.Call) -> list[ast.Name]:
    """Return the names among the arguments of a call, without those that the model computed."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [name for each in given for name in _names_in(each)]


def _names_in(expr: ast.expr) -> list[ast.Name]:
    """Return ``x`` of ``x.to(device)``."""
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute):
        expr = expr.func.value
    return [expr] if isinstance(expr, ast.Name) else []


def _derives_from(stmt: ast.Assign, batch: set[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in batch for node in ast.walk(stmt.value))
