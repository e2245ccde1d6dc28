"""Time limit of a run for proof: by the time that the job took to fail, or by the settings of the project."""

from pathlib import Path
from typing import Any

import msgspec

from ..errors import UserError
from ..logs.types import Timeline
from ..session import Session
from ..system.project_settings import FILE, find_settings, table_name
from ..text.units import seconds_text

START_S = 60.0  # for the start of all ranks: copies of the files, importing torch, the rendezvous
TIMES_UNTIL_FAILURE = 2.0  # the run has to get past the place of the failure, on a machine that may be busier now
UNKNOWN_S = 600.0  # where nothing shows how long the job ran
TABLE, KEY = "proof", "limit-s"
SETTING = f"{KEY} in [{table_name(TABLE)}] of {FILE} sets it"


class ProofLimit(msgspec.Struct, frozen=True):
    """The limit of a run in seconds, and where it is from, in words."""

    limit_s: float
    origin: str


def proof_limit(directory: Path, until_failure_s: float) -> ProofLimit:
    """Return the limit for a job in a directory that failed after a time; 0 if the time is not known.

    Raises:
        UserError: The setting of the project is no number of seconds.
    """
    if (given_s := _given_limit_s(directory)) is not None:
        return ProofLimit(given_s, SETTING)
    if not until_failure_s:
        return ProofLimit(UNKNOWN_S, f"nothing shows how long the job ran; {SETTING}")
    limit_s = START_S + TIMES_UNTIL_FAILURE * until_failure_s
    return ProofLimit(limit_s, f"the job failed after {seconds_text(until_failure_s, whole=True)}; {SETTING}")


def until_failure_in_log_s(session: Session) -> float:
    """Return the time from the first to the last line with a time in the last attempt of the logs; 0 if none has."""
    event = session.last("timeline")
    timeline = msgspec.convert(event.data, Timeline) if event else None
    tracks = timeline.attempts[-1].tracks if timeline and timeline.attempts else []
    times = [event.time_s for track in tracks for event in (track.first, track.last) if event.time_s is not None]
    return max(times) - min(times) if times else 0.0


def _given_limit_s(directory: Path) -> float | None:
    """Return the limit that the settings of the project give, or None.

    Raises:
        UserError: It is no number of seconds.
    """
    found = find_settings(directory, TABLE)
    if found is None:
        return None
    if not isinstance(found.content, dict):
        raise UserError(f"{found.path}: {found.name} is no table", f"[{found.name}] {KEY} = 600")
    given: Any = found.content.get(KEY)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < float("inf"):
        raise UserError(f"{found.path}: {found.name}.{KEY} is no number of seconds", f"{KEY} = 600")
    return float(given)
