"""``unscale-before-clip``: ``scaler.unscale_(optimizer)`` before gradients are clipped."""

import ast

from ...review.patches.move_statement import block_of
from ...training_script.syntax import dotted_name, nodes_of_body
from ..facts import CaseFacts
from ..types import FilePatch, Place
from ..user_code import UserFile
from .training_code import only_statement, place_of, wrapped_models
from .types import RecipeResult

CLIPS = ("clip_grad_norm_", "clip_grad_value_")
SCALERS = ("GradScaler", "ShardedGradScaler")


def unscale_before_clip(facts: CaseFacts) -> RecipeResult:
    """Return the patch of the clipping that comes before a step of the scaler in the same block."""
    scalers = wrapped_models(facts, SCALERS)
    patches: list[FilePatch] = []
    places: list[Place] = []
    for file in facts.files:
        edits = []
        for clip in file.calls(CLIPS):
            stmt = only_statement(file, clip)
            step = _step_after(file, stmt, scalers) if stmt else None
            if stmt is None or step is None:
                continue
            scaler, optimizer = step
            places.append(place_of(file, clip, "clips scaled gradients"))
            edits.append(
                file.source.insert_line(stmt.lineno, f"{scaler}.unscale_({optimizer})", file.source.indent(stmt.lineno))
            )
        if edits:
            patches.append(file.patched(edits))
    return RecipeResult(patches=patches, places=places)


def _step_after(file: UserFile, clip: ast.stmt, scalers: set[str]) -> tuple[str, str] | None:
    """Return the scaler and the optimizer of the only step behind ``clip``, if nothing in the block unscales."""
    block = block_of(file.source, clip)
    around = [node for stmt in block for node in (stmt, *nodes_of_body(stmt)) if isinstance(node, ast.Call)]
    methods = [(call, call.func) for call in around if isinstance(call.func, ast.Attribute)]
    if any(func.attr == "unscale_" for _, func in methods):
        return None
    steps = [
        (dotted_name(func.value), file.source.code(call.args[0]))
        for call, func in methods
        if func.attr == "step" and dotted_name(func.value) in scalers and call.args and call.lineno > clip.lineno
    ]
    return steps[0] if len(steps) == 1 else None
