"""Saved observations of the jobs of a host, to be analysed elsewhere or merged with those of other hosts.

The file is JSON (gzip if its name ends with .gz) and holds no secrets: environments are reduced to launch variables;
command lines, printed lines and source text are redacted.
"""

import gzip
import io
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ... import __version__
from ..errors import UserError
from ..jobs.types import Job, Process
from ..launchers.known_variables import is_launch_variable
from ..system.files import read_regular_file
from ..text import redact
from ..text.numbers import MOST_RANKS
from ..text.terminal import encodable_text
from .types import Observation, ProcessSamples

SCHEMA = "ddpwizard.triage-bundle/1"
LIMIT_BYTES = 512 * 1024 * 1024
NEXT = "create one with ddpwizard triage --save FILE"
LOCAL = ("localhost", "127.", "::1", "[::1]")


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of the jobs of one host (or, merged, of several); times in seconds since the epoch."""

    schema: str = SCHEMA
    ddpwizard_version: str = __version__
    taken_at: float
    observations: list[Observation]


def encode_bundle(observations: Sequence[Observation]) -> bytes:
    """Return the content of the file, without secrets."""
    bundle = Bundle(taken_at=time.time(), observations=[_redact(observed) for observed in observations])
    return msgspec.json.encode(bundle)


def read_bundle(path: Path) -> Bundle:
    """Read a saved bundle.

    Raises:
        UserError: The file cannot be read, or is not a bundle.
    """
    try:
        content = sys.stdin.buffer.read(LIMIT_BYTES) if str(path) == "-" else read_regular_file(path, LIMIT_BYTES, NEXT)
        if content[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(content)) as packed:
                content = packed.read(LIMIT_BYTES)
        bundle = msgspec.json.decode(content, type=Bundle)
    except (OSError, EOFError) as error:
        raise UserError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}", "name another file"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a saved triage: {error}", NEXT) from error
    if bundle.schema != SCHEMA:
        raise UserError(f"{path} is a {bundle.schema}, not a {SCHEMA}", NEXT)
    claimed = _largest_rank(bundle)
    if claimed >= MOST_RANKS:
        raise UserError(f"{path} claims rank {claimed:,}, more than any job has", NEXT)
    return bundle


def _largest_rank(bundle: Bundle) -> int:
    """Return the largest rank that the bundle claims; memory is taken for every rank up to it."""
    claimed = [0]
    for observed in bundle.observations:
        claimed.append(observed.job.world_size - 1)
        claimed += [process.rank for process in observed.job.processes if process.rank is not None]
        claimed += [
            max([record.rank, *(rank for group in record.groups for rank in group.ranks)])
            for record in observed.records
        ]
    return max(claimed)


def merge_bundles(bundles: Iterable[Bundle]) -> list[Observation]:
    """Return the jobs of all bundles, each once, with the observations of all its hosts.

    Of two observations of one job by the same host the later counts.
    """
    by_job: dict[tuple[object, ...], dict[tuple[str, ...], Observation]] = defaultdict(dict)
    for bundle in sorted(bundles, key=lambda bundle: bundle.taken_at):
        for observed in bundle.observations:
            by_job[_identity(observed)][tuple(observed.hosts)] = observed
    return [_merge_hosts(list(of_job.values())) for of_job in by_job.values()]


def _identity(observed: Observation) -> tuple[object, ...]:
    """Return a key equal for one job on all its hosts: run id, master, world size, and the host if it is local."""
    job = observed.job
    run_ids = {process.environ.get("TORCHELASTIC_RUN_ID", "") for process in job.processes}
    alone = job.world_size == len(job.processes) or not job.master or job.master.startswith(LOCAL)
    return (max(run_ids, default=""), job.master, job.world_size, job.id if alone else "", job.host if alone else "")


def _merge_hosts(parts: list[Observation]) -> Observation:
    first = min(parts, key=lambda part: min((p.rank or 0 for p in part.job.processes), default=1 << 30))
    others = [part for part in parts if part is not first]
    if not others:
        return first
    everything = [first, *others]
    return Observation(
        job=msgspec.structs.replace(first.job, processes=[p for part in everything for p in part.job.processes]),
        seen=[seen for part in everything for seen in part.seen],
        sources={path: text for part in reversed(everything) for path, text in part.sources.items()},
        changed_sources={path: at for part in reversed(everything) for path, at in part.changed_sources.items()},
        records=[record for part in everything for record in part.records],
        log=next((part.log for part in everything if part.log), None),
        deaths=[death for part in everything for death in part.deaths],
        ras=next((part.ras for part in everything if part.ras), None),
        launchers=[launcher for part in everything for launcher in part.launchers],
        problems=[f"{part.job.host}: {problem}" for part in everything for problem in part.problems],
    )


def _redact(observed: Observation) -> Observation:
    plain: dict[str, Any] = redact.redact_record(msgspec.to_builtins(msgspec.structs.replace(observed, sources={})))
    redacted = msgspec.convert(plain, Observation, strict=False, str_keys=True)
    return msgspec.structs.replace(
        redacted,
        job=_redact_job(redacted.job),
        seen=[_redact_seen(seen) for seen in redacted.seen],
        sources={encodable_text(path): redact.redact_source(text) for path, text in observed.sources.items()},
    )


def _redact_job(job: Job) -> Job:
    return msgspec.structs.replace(job, processes=[_redact_process(process) for process in job.processes])


def _redact_seen(seen: ProcessSamples) -> ProcessSamples:
    return msgspec.structs.replace(seen, process=_redact_process(seen.process))


def _redact_process(process: Process) -> Process:
    kept = {name: value for name, value in process.environ.items() if is_launch_variable(name)}
    return msgspec.structs.replace(process, environ=kept)
