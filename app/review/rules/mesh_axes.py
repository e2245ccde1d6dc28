"""DW489: device meshes whose sizes are in another order than the names of their dimensions."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial

from ...training_script.model.reach import Run, argument
from ...training_script.model.values import is_elements
from ...training_script.syntax import call_argument
from ..origins import origins_at
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

MAKES = tuple(f"torch.distributed.{inner}init_device_mesh" for inner in ("", "device_mesh."))
FIX = "names-in-order-of-sizes"
LAYOUT = "the sizes may be what is in the wrong order"
WORD = re.compile(r"[a-z]+|\d+")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the meshes in which a size has the name of another dimension than the one at its place."""
    for reach, fact in run.of(*MAKES):
        names, shape = argument(fact, 2, "mesh_dim_names"), argument(fact, 1, "mesh_shape")
        if names is None or shape is None or not script.is_here(reach) or not is_elements(names.obj):
            continue
        words = [
            _words(each.key.value) for each in names.obj if each.key.is_constant and isinstance(each.key.value, str)
        ]
        sizes = _sizes(script, call_argument(fact.node, "mesh_shape", 1))
        if len(words) != len(names.obj) or len(sizes) != len(words) or len({*words}) != len(words):
            continue
        named = [_named(each, words) for each in sizes]
        swapped = [(place, name) for place, name in enumerate(named) if name not in (None, place)]
        if not swapped or any(name == place for place, name in enumerate(named)) or _are_equal(shape.key.args):
            continue
        place, name = swapped[0]
        yield from violation_at(
            script,
            reach,
            f"`{ast.unparse(sizes[place])}` is the size of the dimension {names.obj[place].key.value!r} here, and "
            f"{names.obj[name].key.value!r} is at another place: the groups of the two are exchanged",
            0.85,
            patch=partial(_in_order_of_sizes, script, fact.node, named),
        )


def _in_order_of_sizes(script: Script, call: ast.Call, named: Sequence[int | None]) -> Patch:
    """Return the patch that puts the names of the dimensions into the order of their sizes."""
    names = call_argument(call, "mesh_dim_names", 2)
    if not isinstance(names, ast.Tuple | ast.List) or {*named} != {*range(len(named))}:
        return no_patch(FIX, "put the sizes and the names into one order")
    moved = [names.elts[place] for place in named if place is not None]
    edits = [script.source.replace(old, script.source.code(new)) for old, new in zip(names.elts, moved, strict=True)]
    return Patch(id=FIX, safety="unsafe", why_unsafe=LAYOUT, edits=edits)


def _sizes(script: Script, shape: ast.expr | None) -> list[ast.expr]:
    """Return the sizes of a mesh as they are written, none if they are not."""
    if isinstance(shape, ast.Tuple | ast.List):
        return shape.elts
    made = origins_at(script, shape) if shape is not None else []
    return made[0].elts if len(made) == 1 and isinstance(made[0], ast.Tuple | ast.List) else []


def _named(size: ast.expr, dimensions: list[frozenset[str]]) -> int | None:
    """Return the place of the only dimension whose name is in that of a size: ``tp``, ``tp_size``, ``self.num_tp``."""
    if not isinstance(size, ast.Name | ast.Attribute):
        return None
    words = _words(size.attr if isinstance(size, ast.Attribute) else size.id)
    places = [place for place, each in enumerate(dimensions) if each and each <= words]
    return places[0] if len(places) == 1 else None


def _words(name: str) -> frozenset[str]:
    return frozenset(WORD.findall(name.lower()))


def _are_equal(sizes: tuple[object, ...]) -> bool:
    return all(each is sizes[0] for each in sizes)
