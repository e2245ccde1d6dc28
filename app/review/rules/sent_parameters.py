"""DW511: parameters of a loaded model that one rank sends to all, without the statistics of its BatchNorm."""

import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.keys import parts
from ...training_script.model.reach import ALL, Run, argument
from ...training_script.torch_classes import DDP_CLASSES
from ..patches.own_data import state_of_all_buffers
from ..rule_context import Script, Violation
from ..types import RelatedPlace
from ..violations import violation_at

SENDS = "torch.distributed.broadcast"
# What may send the buffers, or need none.
OF_BUFFERS = re.compile(
    r"buffers\(|state_dict\(\)\.(?:values|items)|[Ss]ync_?[Bb]atch_?[Nn]orm|running_|broadcast_object"
)


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the broadcast of the parameters of a model whose state only some ranks load."""
    if SENDS not in run.places or ".load_state_dict" not in run.places:
        return
    if not script.evaluated.normalises or script.mentions(OF_BUFFERS) or any(run.of(*DDP_CLASSES)):
        return
    loads = [(reach, fact) for reach, fact in run.of(".load_state_dict") if fact.owner and not reach.unsure]
    own = {fact.owner.key: fact for reach, fact in loads if fact.owner and reach.ranks != ALL}
    own = {
        key: fact
        for key, fact in own.items()
        if not any(r.ranks == ALL and f.owner.key is key for r, f in loads if f.owner)
    }
    calls = {fact.result.key: fact for _, fact in run.of(".parameters") if fact.owner and fact.owner.key in own}
    listed = {key: fact.owner.key for key, fact in calls.items() if fact.owner}
    for reach, fact in run.of(SENDS) if listed else ():
        given = argument(fact, 0, "tensor")
        sent = next((part for part in parts(given.key) if part in listed), None) if given else None
        if sent is not None and reach.ranks == ALL and reach.loops:
            load, parameters = own[listed[sent]], calls[sent].node
            yield from violation_at(
                script,
                reach,
                f"some ranks have loaded this model (line {load.site.line}), and the broadcast of its parameters "
                "leaves out the buffers: the others keep the first statistics of BatchNorm",
                0.8,
                related=[RelatedPlace(path=load.site.path, line=load.site.line, message="loaded here")],
                patch=partial(state_of_all_buffers, script, parameters) if script.is_here(reach) else None,
            )
            return
