"""DW308: models of which fully_shard has sharded only some layers: nothing reduces the gradients of the others."""

from collections.abc import Iterator

from ...training_script.model.keys import Key
from ...training_script.model.reach import Run, argument, together
from ...training_script.model.values import Instance
from ...training_script.torch_classes import DDP_CLASSES, LAYER, is_optimizer
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at
from .fsdp_order import FSDP1, FSDP2

REDUCES = ("torch.distributed.all_reduce", "torch.distributed.all_reduce_coalesced")
LISTED = (".parameters", ".named_parameters")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the sharding of layers of a model that is not sharded itself, and that an optimizer trains as a whole."""
    sharded = [(reach, fact, given.key) for reach, fact in run.of(*FSDP2) if (given := argument(fact, 0, "module"))]
    reduced = any("gradient" in given.facts for _, fact in run.of(*REDUCES) if (given := argument(fact, 0, "tensor")))
    if not sharded or reduced or any(run.of(*DDP_CLASSES, *FSDP1)) or not any(run.of(".backward")):
        return
    keys = {key for _, _, key in sharded}
    trained = any(isinstance(each.name, str) and is_optimizer(each.name) for each in run.reached)
    for listed, fact in run.of(*LISTED) if trained else ():
        model = fact.owner
        if model is None or not isinstance(model.obj, Instance) or model.key in keys or not listed.by_all:
            continue
        held = {name: value.key for each in model.obj.cls.ancestry() for name, value in each.attributes.items()}
        parts = [at for at, _, key in sharded if _whole(key) in held.values() and together(at, listed)]
        shared = {_whole(key) for key in keys}
        rest = sorted(name for name, key in held.items() if _is_layer(key) and key not in shared)
        if parts and rest:
            yield from violation_at(
                script,
                parts[-1],
                f"only these layers of the model are sharded: `{rest[0]}` is in no call of fully_shard, so that each "
                "rank trains it by its own gradients",
                0.85,
                related=[RelatedPlace(path=fact.site.path, line=fact.site.line, message="all are trained")],
            )
            return


def _whole(part: Key) -> Key:
    """Return the list of layers of which a layer is an element."""
    while part.op in ("element", "item") and isinstance(part.args[0], Key):
        part = part.args[0]
    return part


def _is_layer(key: Key) -> bool:
    """Return whether a value is a layer of torch with parameters."""
    name = str(key.args[0]) if key.op == "call" else ""
    return name.startswith("torch.nn.") and LAYER.fullmatch(name.rpartition(".")[2]) is not None
