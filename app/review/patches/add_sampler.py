"""The edits that give a loader a DistributedSampler."""

import ast

from ...training_script.edits import Edit
from ...training_script.source import ScriptSource
from ...training_script.syntax import call_argument, dotted_name, last_name
from ..epoch_loops import EVALUATION
from .torch_names import import_line

SAMPLER = "torch.utils.data.DistributedSampler"
DATASETS = ("dataset", "train_dataset", "training_data")
NAMES = ("sampler", "train_sampler", "data_sampler")


def sampler_edits(source: ScriptSource, loader: ast.Call, distributed: str, taken: set[str]) -> list[Edit]:
    """Return the edits of one loader with ``shuffle=True``, and mark the name of its sampler as taken."""
    stmt = source.statement_of(loader)
    data, shuffle = call_argument(loader, "dataset", 0), call_argument(loader, "shuffle", 2)
    is_training = isinstance(shuffle, ast.Constant) and shuffle.value is True
    if any(call_argument(loader, name, place) for name, place in (("sampler", 3), ("batch_sampler", 4))):
        return []
    if not distributed or data is None or not is_training:
        return []
    keyword = next((each for each in loader.keywords if each.arg == "shuffle"), None)
    if keyword is None or EVALUATION.search(last_name(data)):
        return []
    name, held = (next((each for each in names if each not in taken), "") for names in (NAMES, DATASETS))
    named = bool(dotted_name(data))
    if not named and (not held or not isinstance(data, ast.Call)):
        return []
    imported = import_line(source, f"from {SAMPLER.rpartition('.')[0]} import DistributedSampler")
    if not name or imported is None or not isinstance(stmt, ast.Assign) or not source.alone(stmt):
        return []
    taken |= {name} if named else {name, held}
    indent = source.indent(stmt.lineno)
    made = [] if named else [source.insert_line(stmt.lineno, f"{held} = {source.one_line(data)}", indent)]
    made += [] if named else [source.replace(data, held)]
    value = f"DistributedSampler({source.code(data) if named else held}) if {distributed}.is_initialized() else None"
    return [
        imported,
        *made,
        source.insert_line(stmt.lineno, f"{name} = {value}", indent),
        Edit(
            source.start(keyword.value) - len("shuffle="),
            source.end(keyword.value),
            f"sampler={name}, shuffle={name} is None",
        ),
    ]
