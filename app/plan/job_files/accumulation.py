"""FSDP2 with gradient accumulation: whether each micro-batch reduces its gradients, by memory and time."""

from typing import NamedTuple

import msgspec

from ...text.units import gib_text
from ..memory.model_states import model_states
from ..memory.peak import estimate_candidate
from ..model.parameter_counts import trained_params
from ..strategies.evaluate import gpu_of
from ..timing.communication import CollectiveGroup, Links, ring_pass_s
from ..timing.compute import compute_cost
from ..timing.step_time import sent_grad_bytes, sent_weight_bytes, step_time
from ..types import TrainingSetup

LEAST_SHARE = 0.05  # of a step: an estimate is no better than that


class Accumulation(NamedTuple):
    """A choice: gradients stay unreduced until the last micro-batch or not, and the reason."""

    unreduced: bool
    reason: str


def weigh_accumulation(setting: TrainingSetup, links: Links | None = None) -> Accumulation:
    """Choose for a complete setting. A choice in its strategy stays; without links only memory is known."""
    strategy = setting.layout
    if not strategy.is_fully_shard or (setting.train.grad_accum or 1) == 1:
        return Accumulation(False, "")
    kept = msgspec.structs.replace(setting, strategy=msgspec.structs.replace(strategy, sync_each_batch=False))
    reduced = msgspec.structs.replace(setting, strategy=msgspec.structs.replace(strategy, sync_each_batch=True))
    bytes_more = gib_text(max(0.0, model_states(kept).total - model_states(reduced).total))
    saved_s, whole_s = _saved_seconds(reduced, links) if links else (0.0, 0.0)
    time = f" and save about {saved_s:.2g} s of a step of {whole_s:.2g} s" if whole_s else ""
    if strategy.sync_each_batch is False:
        return Accumulation(True, f"Reduced with the last micro-batch only: {bytes_more} more on each GPU.")
    fits = estimate_candidate(kept).fits is True
    if strategy.sync_each_batch is None and fits and whole_s and saved_s > LEAST_SHARE * whole_s:
        return Accumulation(
            True,
            f"Reduced with the last micro-batch only: {bytes_more} more on each GPU, about {saved_s:.2g} s of "
            f"{whole_s:.2g} s saved.",
        )
    return Accumulation(False, f"Each micro-batch reduces its gradients: else they would take {bytes_more} more{time}.")


def _saved_seconds(setting: TrainingSetup, links: Links) -> tuple[float, float]:
    """Return the seconds that fewer reductions save, and those of the step with all of them.

    A reduction costs what does not hide behind the backward pass, which also gathers the weights again.
    """
    train, gpu = setting.train, gpu_of(setting)
    group = CollectiveGroup(setting.gpus, setting.nodes)
    reduce_s = ring_pass_s(trained_params(setting.model, train) * sent_grad_bytes(train), group, links)
    gather_s = 0.0
    if setting.layout.reshard_after_forward is not False:
        gather_s = ring_pass_s(setting.model.params * sent_weight_bytes(train), group, links)
    exposed_s = max(0.0, gather_s + reduce_s - compute_cost(setting, gpu, links).backward_s)
    times = (train.grad_accum or 1) - 1
    return times * min(reduce_s, exposed_s), step_time(setting, gpu, links).step_s
