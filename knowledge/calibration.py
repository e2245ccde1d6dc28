"""Measured values of observations: ``calibration.json``, which ``make calibrate`` writes from labelled cases.

The entries say in words how much an observation means (decisive, strong …). The nats of a word are multiplied by what
observations of its class were worth on labelled cases. A class without enough cases keeps the multiplier 1. A cause
that is more frequent than others in the labelled cases has a larger prior.
"""

from functools import cache

import msgspec

from .schema import BUILT_IN

CALIBRATION_FILE = BUILT_IN / "calibration.json"


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """``multipliers`` by class of evidence, ``temperatures`` by what the first cause rests on, ``priors`` (nats) by
    cause; when and on how many cases they were fitted, and the scores reached on the folds that they were not fitted
    on."""

    date: str = ""
    cases: int = 0
    scores: dict[str, float] = {}
    multipliers: dict[str, float] = {}
    temperatures: dict[str, float] = {}
    priors: dict[str, float] = {}


@cache
def built_in_calibration() -> Calibration:
    """Return the calibration of the built-in knowledge base; it is read once."""
    return msgspec.json.decode(CALIBRATION_FILE.read_bytes(), type=Calibration)
