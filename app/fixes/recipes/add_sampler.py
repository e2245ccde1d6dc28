"""``add-sampler``: a DistributedSampler for each loader that shuffles, and ``set_epoch`` in its epoch loop."""

import ast

from ...review.epoch_loops import EVALUATION
from ...review.patches.apply_edits import apply_edits
from ...review.rule_context import Script
from ...review.rules import missing_set_epoch
from ...training_script.edits import Edit
from ...training_script.syntax import call_argument, dotted_name
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .training_code import distributed_module, only_statement, place_of
from .types import RecipeResult

SAMPLER = "torch.utils.data.DistributedSampler"
# These give each rank its part themselves.
SHARDS = ("DistributedSampler", "Accelerator", "Trainer", "Fabric", ".prepare", "deepspeed.initialize")


def add_sampler(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the loaders with ``shuffle=True`` and without a sampler."""
    if next(facts.calls(SHARDS), None) or not next(facts.calls(["init_process_group"]), None):
        return RecipeResult()
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        edits: list[Edit] = []
        taken = {node.id for node in ast.walk(file.source.tree) if isinstance(node, ast.Name)}
        for loader in file.calls(["DataLoader"]):
            if not (made := _edits(file, loader, taken)):
                continue
            edits += made
            places.append(place_of(file, loader, "every rank reads all of it"))
        if edits:
            after = _with_set_epoch(apply_edits(file.text, edits), file.path)
            patches.append(FilePatch(path=file.path, before=file.text, after=after))
    return RecipeResult(patches=patches, places=places)


def _edits(file: UserFile, loader: ast.Call, taken: set[str]) -> list[Edit]:
    """Return the edits of one loader, and mark the name of its sampler as taken."""
    source, dist, stmt = file.source, distributed_module(file), only_statement(file, loader)
    data, shuffle = call_argument(loader, "dataset", 0), call_argument(loader, "shuffle", 2)
    is_training = isinstance(shuffle, ast.Constant) and shuffle.value is True
    if any(call_argument(loader, name, place) for name, place in (("sampler", 3), ("batch_sampler", 4))):
        return []
    if not dist or data is None or not dotted_name(data) or not is_training or not isinstance(stmt, ast.Assign):
        return []
    keyword = next((each for each in loader.keywords if each.arg == "shuffle"), None)
    if keyword is None or EVALUATION.search(dotted_name(data).rpartition(".")[2]):
        return []
    name = next((each for each in ("sampler", "train_sampler", "data_sampler") if each not in taken), "")
    if not name:
        return []
    taken.add(name)
    value = f"DistributedSampler({source.code(data)}) if {dist}.is_initialized() else None"
    return [
        *_import(file),
        source.insert_line(stmt.lineno, f"{name} = {value}", source.indent(stmt.lineno)),
        Edit(
            source.start(keyword.value) - len("shuffle="),
            source.end(keyword.value),
            f"sampler={name}, shuffle={name} is None",
        ),
    ]


def _import(file: UserFile) -> list[Edit]:
    """Return the edit that imports the sampler before the first import of the file that is no ``__future__``."""
    for stmt in file.source.tree.body:
        if isinstance(stmt, (ast.Import, ast.ImportFrom)) and getattr(stmt, "module", "") != "__future__":
            return [
                file.source.insert_line(stmt.lineno, f"from {SAMPLER.rpartition('.')[0]} import DistributedSampler", "")
            ]
    return []


def _with_set_epoch(text: str, path: str) -> str:
    """Return the text with the patch of the rule for samplers whose epoch is not set, where it has one."""
    for found in missing_set_epoch.check(Script(text, path)):
        patch = found.patch() if found.patch else None
        if patch and patch.edits:
            return _with_set_epoch(apply_edits(text, patch.edits), path)
    return text
