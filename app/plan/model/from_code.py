"""A model's shape from the user's own code, built on the meta device in a child process of the user's interpreter."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ...errors import InspectionError, UserError
from ...system.subprocesses import run_process
from ..types import Model
from . import hf_config

AGENT = Path(__file__).parent.parent.parent / "agents" / "model_shape.py"
LIMIT_S = 60.0
BY_HAND = "try it by hand in the same interpreter"
ON_META = "it is built without values, on the meta device: give its --config or a --checkpoint instead"
SAME = 0.05  # of the parameters: adapters or a task head may be added
OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
Arguments = tuple[Sequence[Any], Mapping[str, Any]]
NONE: Arguments = ((), {})


class Parameter(msgspec.Struct, frozen=True):
    """One parameter: its shape, bytes per element, and whether it has a gradient."""

    shape: list[int]
    bytes: int
    trained: bool

    @property
    def count(self) -> int:
        return math.prod(self.shape)


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's description of a model. ``layers``: the number of its largest repeated ``block``."""

    problem: str = ""
    name: str = ""
    params: list[Parameter] = []
    block: str = ""
    layers: int = 0
    vocab: int = 0
    hidden: int = 0
    intermediate: int = 0
    gated: bool = False
    heads: int = 0
    kv_heads: int = 0
    tied: bool = False
    config: dict[str, Any] = {}


def names_function(spec: str) -> bool:
    """Return whether ``spec`` has the form ``package.module:function``."""
    module, colon, name = spec.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def check_factory(factory: str) -> None:
    """Check the form of a factory.

    Raises:
        UserError: It is not of the form ``package.module:function``.
    """
    if not names_function(factory):
        raise UserError(f"{factory} names no function", "give it as package.module:build_model")


async def inspect_factory(
    factory: str, python: str, directory: Path, arguments: Arguments = NONE, limit_s: float = LIMIT_S
) -> ModelShape:
    """Build ``package.module:factory`` with that interpreter and these arguments; downloads are refused.

    Raises:
        UserError: It is not of that form, or building the model failed.
        InspectionError: The child did not answer in time, or died.
    """
    check_factory(factory)
    command = [python, str(AGENT), factory, json.dumps(arguments)]
    outcome = await run_process(command, limit_s=limit_s, cwd=directory, answers=True, env={**os.environ, **OFFLINE})
    if not outcome.answer:
        raise InspectionError(f"building {factory} {outcome.why}", BY_HAND)
    try:
        shape = msgspec.json.decode(outcome.answer, type=ModelShape)
    except msgspec.MsgspecError as error:
        raise InspectionError(f"building {factory} gave no readable answer: {error}", "check --python") from error
    if shape.problem:
        of_meta = "meta" in shape.problem and "tensor" in shape.problem.lower()
        raise UserError(f"building {factory} failed: {shape.problem}", ON_META if of_meta else BY_HAND)
    return shape


def model_from_shape(shape: ModelShape) -> Model:
    """Return the planner's model of a shape.

    The config of a transformers model shows more than its modules (experts, wide heads); it is used if its number of
    parameters matches.
    """
    params = float(sum(parameter.count for parameter in shape.params))
    configured = None
    with suppress(UserError):
        configured = hf_config.model_from_config(shape.config, shape.name)[0] if shape.config else None
    if configured and abs(configured.params - params) <= SAME * params:
        active = configured.active_params * params / configured.params if configured.active_params else None
        return msgspec.structs.replace(
            configured, params=params, active_params=active, block=shape.block or configured.block
        )
    return Model(
        name=shape.name,
        params=params,
        layers=shape.layers or None,
        hidden=shape.hidden or None,
        heads=shape.heads or None,
        kv_heads=shape.kv_heads or None,
        intermediate=shape.intermediate or None,
        vocab=shape.vocab or None,
        tied=shape.tied,
        mlp="swiglu" if shape.gated else "gelu",
        block=shape.block,
    )


def frozen_share(shape: ModelShape) -> float:
    """Return the share of the weights that have no gradient."""
    return sum(each.count for each in shape.params if not each.trained) / sum(each.count for each in shape.params)
