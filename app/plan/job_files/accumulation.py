"""FSDP2 with gradient accumulation: whether each micro-batch reduces its gradients, by memory and time."""

from typing import NamedTuple

from ...text.units import gib_text
from ..memory.model_states import model_states
from ..memory.peak import estimate_candidate
from ..strategies.evaluate import gpu_of
from ..timing.communication import Links
from ..timing.step_time import step_time
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
    kept, reduced = setting.with_layout(sync_each_batch=False), setting.with_layout(sync_each_batch=True)
    bytes_more = gib_text(max(0.0, model_states(kept).total - model_states(reduced).total))
    whole_s, kept_s = (step_time(each, gpu_of(each), links).step_s if links else 0.0 for each in (reduced, kept))
    saved_s = whole_s - kept_s
    pays = bool(whole_s) and saved_s > LEAST_SHARE * whole_s and estimate_candidate(kept).fits is True
    if strategy.sync_each_batch is False or (strategy.sync_each_batch is None and pays):
        faster = "" if strategy.sync_each_batch is False else f", about {saved_s:.2g} s of {whole_s:.2g} s saved"
        return Accumulation(True, f"Reduced with the last micro-batch only: {bytes_more} more on each GPU{faster}.")
    time = f" and save about {saved_s:.2g} s of a step of {whole_s:.2g} s" if whole_s else ""
    return Accumulation(False, f"Each micro-batch reduces its gradients: else they would take {bytes_more} more{time}.")
