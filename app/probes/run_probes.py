"""Run probes, each within its limit, into one snapshot; judge and merge snapshots."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from ... import __version__
from ...knowledge.schema import Intrusiveness, Knowledge
from ..errors import InspectionError, UserError
from ..evidence import Check
from ..snapshot import Snapshot
from ..system.waiting import wait_for
from .context import ProbeContext, level_permitted

# In the order of their checks; each is a module of this folder and a field of the snapshot.
PROBES = {
    "env": "the launch environment",
    "software": "torch, CUDA and NCCL",
    "gpus": "the GPUs",
    "ports": "the rendezvous port",
    "network": "the network interfaces",
    "limits": "shared memory and limits",
    "resolve": "MASTER_ADDR",
    "allreduce": "the all-reduce test",
}
NEEDS = {
    "connects": "it opens connections",
    "allocates": "it starts processes and uses memory",
    "perturbs": "it may pause a job",
}
SLACK_S = 7.0  # beyond a probe's limit, for its supervisor to end the children
OnStart = Callable[[str], None]
OnDone = Callable[[str, Snapshot], None]  # the probe, and a snapshot with its section only


def permitted_probes(knowledge: Knowledge, granted: Intrusiveness) -> list[str]:
    """Return the probes that may run at this level."""
    return [
        id_
        for id_ in PROBES
        if id_ in knowledge.probes and level_permitted(knowledge.probes[id_].intrusiveness, granted)
    ]


async def run_probes(
    probes: Iterable[str],
    context: ProbeContext,
    knowledge: Knowledge,
    *,
    granted: Intrusiveness,
    on_start: OnStart | None = None,
    on_done: OnDone | None = None,
) -> Snapshot:
    """Run probes. Those that only read run concurrently, the others after them, one by one.

    A probe that failed or was not permitted is in ``failed`` of the snapshot, with the reason.
    """
    wanted = [probe for probe in PROBES if probe in set(probes)]
    snapshot = _empty()

    async def one(probe: str) -> None:
        nonlocal snapshot
        if on_start:
            on_start(probe)
        part = await _run(probe, context, knowledge, granted)
        snapshot = merge_snapshots(snapshot, part)
        if on_done:
            on_done(probe, part)

    reading = [probe for probe in wanted if knowledge.probes[probe].intrusiveness == "reads"]
    await asyncio.gather(*(one(probe) for probe in reading))
    for probe in wanted:
        if probe not in reading:
            await one(probe)
    return snapshot


async def _run(probe: str, context: ProbeContext, knowledge: Knowledge, granted: Intrusiveness) -> Snapshot:
    """Run one probe and return a snapshot with its section, or with the reason why it is missing."""
    spec = knowledge.probes[probe]
    if not level_permitted(spec.intrusiveness, granted):
        return _empty(failed={probe: f"not run: {NEEDS[spec.intrusiveness]}; --allow {spec.intrusiveness} runs it"})
    try:
        collect = import_module(f".{probe}", __package__).collect
        section = await wait_for(spec.limit_s + SLACK_S, collect(context, spec.limit_s))
    except asyncio.TimeoutError:
        return _empty(failed={probe: f"did not answer within {spec.limit_s:g} s"})
    except (InspectionError, UserError) as error:
        return _empty(failed={probe: str(error)})
    except Exception as error:  # a failing probe must not stop the others
        return _empty(failed={probe: f"the check itself failed: {type(error).__name__}: {error}"})
    return _empty(**{probe: section})


def _empty(**parts: Any) -> Snapshot:
    return Snapshot(taken_at=time.time(), host=socket.gethostname(), ddpwizard_version=__version__, **parts)


def judge_snapshot(snapshot: Snapshot, probes: Iterable[str] | None = None) -> list[Check]:
    """Return the checks of all judges. A failed probe is ``unknown`` with its reason, never ok.

    A finding that two judges report at the same place is returned once.
    """
    checks: list[Check] = []
    for probe in PROBES if probes is None else [probe for probe in PROBES if probe in set(probes)]:
        if probe in snapshot.failed:
            checks.append(Check(probe, "unknown", f"could not check {PROBES[probe]}", snapshot.failed[probe]))
        elif getattr(snapshot, probe) is not None:
            checks += import_module(f".{probe}", __package__).judge(snapshot)
    seen: set[tuple[str, str]] = set()
    return [check for check in checks if not (check.finding and _is_repeated(check, seen))]


def _is_repeated(check: Check, seen: set[tuple[str, str]]) -> bool:
    key = (check.finding, check.where)
    again = bool(check.where) and key in seen
    seen.add(key)
    return again


def merge_snapshots(old: Snapshot, new: Snapshot) -> Snapshot:
    """Return the newer snapshot, completed with sections of the older one that the newer did not collect."""
    collected = {probe: getattr(new, probe) for probe in PROBES if getattr(new, probe) is not None}
    tried = {*collected, *new.failed}
    kept = {probe: getattr(old, probe) for probe in PROBES if probe not in tried}
    failed = {probe: why for probe, why in old.failed.items() if probe not in tried} | new.failed
    return replace(new, **kept, **collected, failed=failed)
