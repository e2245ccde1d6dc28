"""What surrounds the ranks of a job, looked at once between two looks at the ranks themselves: their children,
connections, GPUs, last output, flight records, logs, and who was ended."""

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from ....knowledge.schema import Intrusiveness
from ...errors import UserError
from ...jobs.types import Job
from ...probes.context import level_permitted
from ...system import proc_files, ptrace
from ...system.timeouts import run_in_thread
from ..job_logs import read
from ..nccl_ras.client import query_ras
from ..rank_activity.collectives_in_stack import collective_of
from ..rank_activity.progress import STOPPED_OR_GONE
from ..types import (
    Child,
    Connection,
    GpuUse,
    JobLog,
    Launcher,
    ProcessDeath,
    ProcessSamples,
    RankRecord,
    RasStatus,
    Sample,
)
from . import (
    children,
    connections,
    deaths,
    debug_server,
    flight_recorder_dumps,
    gpu_usage,
    launcher_stack,
    stacks,
    worker_server,
)
from .last_output import LastOutput, last_lines_by_rank, log_files

T = TypeVar("T")
FILES_LIMIT_S = 3.0
LOG_LIMIT_S = 3.0
DUMP_LIMIT_S = 3.0
RECORD_LIMIT_S = 2.0
PROBLEMS = 8  # told of single processes


class SampleContext(msgspec.Struct, kw_only=True):
    """What was found, by the pid of the rank. The children are told as they are when asked for."""

    watched: list[children.WatchedChild] = []
    links: Mapping[int, list[Connection]] = {}
    devices: Mapping[int, list[GpuUse]] = {}
    output: Mapping[int, LastOutput] = {}
    records: list[RankRecord] = []
    log: JobLog | None = None
    deaths: list[ProcessDeath] = []
    ras: RasStatus | None = None
    launchers: list[Launcher] = []
    problems: list[str] = []

    def children(self) -> Mapping[int, list[Child]]:
        """The children of each rank, and whether they moved since they were found."""
        return children.current_children(self.watched)


async def sample_context(
    job: Job, first: Mapping[int, Sample], *, logs: Sequence[Path] = (), allow: Intrusiveness = "reads"
) -> SampleContext:
    """Look around the ranks once. ``first`` is the first look at them: it says what is worth its cost."""
    problems = [text for text in (ptrace.proc_hidden(), *(_unread(first) or _closed(first))) if text]

    async def tried(look: Awaitable[T], otherwise: T) -> T:
        try:
            return await look
        except UserError as error:
            problems.append(error.message)
        except (OSError, ValueError) as error:
            problems.append(f"could not look: {error}")
        return otherwise

    alive = [process for process in job.processes if first[process.pid].process_state not in STOPPED_OR_GONE]
    on_gpu = [pid for pid, sample in first.items() if sample.gpu]
    outside = {pid for pid, sample in first.items() if sample.stack and not collective_of(sample.stack)[0]}
    (watched, linked, gpus, said, launchers), (log, (ended, silent), ras, records) = await asyncio.gather(
        asyncio.gather(
            tried(_children(job, outside), []),
            tried(
                run_in_thread(lambda: _links(job), limit_s=FILES_LIMIT_S, subject="the connections of the ranks"), {}
            ),
            tried(gpu_usage.gpus_of_processes(on_gpu), {}) if on_gpu else _nothing(dict[int, list[GpuUse]]()),
            tried(
                run_in_thread(
                    lambda: last_lines_by_rank(job), limit_s=FILES_LIMIT_S, subject="the output of the ranks"
                ),
                {},
            ),
            tried(launcher_stack.sample_launchers(job), []),
        ),
        asyncio.gather(
            tried(run_in_thread(lambda: _log(job, logs), limit_s=LOG_LIMIT_S, subject="the logs of the job"), None),
            tried(
                run_in_thread(lambda: deaths.find_deaths(job), limit_s=FILES_LIMIT_S, subject="the kernel log"),
                ([], []),
            ),
            query_ras() if level_permitted("connects", allow) else _nothing(None),
            asyncio.gather(*(_record(process.rank, worker_server.worker_socket(process)) for process in alive)),
        ),
    )
    live = [record for record in records if record]
    if not live:
        live, untold = await tried(_from_debug_server(job, watched, level_permitted("connects", allow)), ([], []))
        problems += untold
    kept, unreadable = ([], []) if live else await tried(_dumped(job, level_permitted("perturbs", allow)), ([], []))
    return SampleContext(
        watched=watched,
        links=linked,
        devices=gpus,
        output=said,
        records=live or kept,
        log=log,
        deaths=[*ended, *(read.deaths_in_log(log) if log else [])],
        ras=ras,
        launchers=launchers,
        problems=[*problems, *silent, *unreadable],
    )


async def _children(job: Job, outside: Collection[int]) -> list[children.WatchedChild]:
    """The children of every rank; where they stand only for ranks that are in no collective: others wait for a peer."""
    watched = await run_in_thread(
        lambda: children.watch_children(job), limit_s=FILES_LIMIT_S, subject="the children of the ranks"
    )
    await children.read_child_stacks(watched, outside)
    return watched


def _log(job: Job, given: Sequence[Path]) -> JobLog | None:
    files = list(dict.fromkeys([*given, *log_files(job)]))
    return read.read_job_logs(files) if files else None


def _links(job: Job) -> dict[int, list[Connection]]:
    tables = connections.SocketTables()
    return {process.pid: connections.connections(process.pid, tables) for process in job.processes}


async def _from_debug_server(
    job: Job, watched: Sequence[children.WatchedChild], may_ask: bool
) -> tuple[list[RankRecord], list[str]]:
    """What torch's debug server tells, where the job has one and it may be asked; else that it was not asked."""
    limit_s, subject = FILES_LIMIT_S, "the ports of the ranks' children"
    ports = await run_in_thread(lambda: debug_server.debug_ports(job, watched), limit_s=limit_s, subject=subject)
    if ports and not may_ask:
        return [], [f"port {ports[0]} of a rank's child, torch's debug server perhaps: --allow connects asks it"]
    told = await asyncio.gather(*(debug_server.fetch_records(port) for port in ports))
    return next((found for found in told if found), []), []


async def _dumped(job: Job, may_ask: bool) -> tuple[list[RankRecord], list[str]]:
    """The dumps that lie there; where it is allowed, those that the ranks write when they are asked."""
    subject = "the flight recorder's dumps"
    if may_ask:
        await run_in_thread(
            lambda: flight_recorder_dumps.request_dumps(job, DUMP_LIMIT_S), limit_s=2 * DUMP_LIMIT_S, subject=subject
        )
    return await run_in_thread(lambda: flight_recorder_dumps.read_dumps(job), limit_s=FILES_LIMIT_S, subject=subject)


async def _record(rank: int | None, way_in: Path | None) -> RankRecord | None:
    return await worker_server.fetch_record(way_in, rank, RECORD_LIMIT_S) if way_in and rank is not None else None


async def _nothing(otherwise: T) -> T:
    return otherwise


def _unread(first: Mapping[int, Sample]) -> list[str]:
    """The processes whose stacks could not be read, and why."""
    told = [f"pid {pid}: {each.problem}" for pid, each in first.items() if each.problem not in ("", stacks.GONE)]
    more = len(told) - PROBLEMS
    return told[:PROBLEMS] + ([f"{more} more processes: stacks not readable"] if more > 0 else [])


def _closed(first: Mapping[int, Sample]) -> list[str]:
    """The processes whose stacks were told through a socket, but whose open files the kernel does not show us."""
    alive = [pid for pid, each in first.items() if each.problem != stacks.GONE]
    closed = [pid for pid in alive if not _shows_files(pid)]
    if not closed:
        return []
    who = f"{len(closed)} process{'es' if len(closed) > 1 else ''}"
    return [
        f"connections, I/O and output files of {who}: not permitted: "
        f"{ptrace.access_problem(ptrace.read_access(closed[0]))}"
    ]


def _shows_files(pid: int) -> bool:
    try:
        return bool((proc_files.PROC / str(pid) / "cwd").readlink())  # asks for the same right, and is always there
    except PermissionError:
        return False
    except OSError:
        return True  # it has ended


def process_samples(
    job: Job, looks: Sequence[Mapping[int, Sample]], around: SampleContext | None
) -> list[ProcessSamples]:
    """Each process of the job with all that was seen of it."""
    around = around or SampleContext()
    below = around.children()
    found: list[ProcessSamples] = []
    for process in job.processes:
        said = around.output.get(process.pid)
        found.append(
            ProcessSamples(
                process=process,
                host=job.host,
                samples=[look[process.pid] for look in looks],
                children=below.get(process.pid, []),
                links=around.links.get(process.pid, []),
                devices=around.devices.get(process.pid, []),
                output=said.lines if said else [],
                output_from=said.path if said else "",
            )
        )
    return found
