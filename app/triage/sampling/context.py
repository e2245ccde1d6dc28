"""Collect what belongs to each rank between two stack samples: children, connections, GPUs, output, Flight Recorder
dumps, logs, deaths.
"""

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
from ...system.waiting import run_in_thread
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
READ_DUMPS_LIMIT_S = 5.0  # starting the child process included
RECORD_LIMIT_S = 2.0
MOST_PROBLEMS = 8  # of single processes


class SampleContext(msgspec.Struct, kw_only=True):
    """The data collected around the ranks, by the pid of the rank."""

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
        """Return the children of each rank, with their progress since they were found."""
        return children.current_children(self.watched)


async def sample_context(
    job: Job, first: Mapping[int, Sample], *, logs: Sequence[Path] = (), allow: Intrusiveness = "reads"
) -> SampleContext:
    """Collect the context of the ranks once. ``first``: their first samples, which limit what is worth reading."""
    problems = [text for text in (ptrace.proc_hidden(), *(_unreadable_stacks(first) or _hidden_files(first))) if text]

    async def tried(reading: Awaitable[T], default: T) -> T:
        try:
            return await reading
        except UserError as error:
            problems.append(error.message)
        except (OSError, ValueError) as error:
            problems.append(f"could not be inspected: {error}")
        return default

    alive = [process for process in job.processes if first[process.pid].process_state not in STOPPED_OR_GONE]
    on_gpu = [pid for pid, sample in first.items() if sample.gpu]
    outside = {pid for pid, sample in first.items() if sample.stack and not collective_of(sample.stack)[0]}
    (watched, linked, gpus, output, launchers), (log, (ended, silent), ras, records) = await asyncio.gather(
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
        live, not_asked = await tried(_from_debug_server(job, watched, level_permitted("connects", allow)), ([], []))
        problems += not_asked
    kept, unreadable = ([], []) if live else await tried(_dumped(job, level_permitted("perturbs", allow)), ([], []))
    return SampleContext(
        watched=watched,
        links=linked,
        devices=gpus,
        output=output,
        records=live or kept,
        log=log,
        deaths=[*ended, *(read.deaths_in_log(log) if log else [])],
        ras=ras,
        launchers=launchers,
        problems=[*problems, *silent, *unreadable],
    )


async def _children(job: Job, outside: Collection[int]) -> list[children.WatchedChild]:
    """Return the children of every rank, with stacks only for ranks outside collectives: the others wait for a peer."""
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
    job: Job, watched: Sequence[children.WatchedChild], permitted: bool
) -> tuple[list[RankRecord], list[str]]:
    """Return the records from torch's debug server, or a problem if it may not be contacted."""
    limit_s, subject = FILES_LIMIT_S, "the ports of the ranks' children"
    ports = await run_in_thread(lambda: debug_server.debug_ports(job, watched), limit_s=limit_s, subject=subject)
    if ports and not permitted:
        return [], [f"port {ports[0]} of a rank's child may be torch's debug server: pass --allow connects to read it"]
    answers = await asyncio.gather(*(debug_server.fetch_records(port) for port in ports))
    return next((found for found in answers if found), []), []


async def _dumped(job: Job, permitted: bool) -> tuple[list[RankRecord], list[str]]:
    """Return the existing dumps; if permitted, those that the ranks write on request."""
    if permitted:
        await run_in_thread(
            lambda: flight_recorder_dumps.request_dumps(job, DUMP_LIMIT_S),
            limit_s=2 * DUMP_LIMIT_S,
            subject=flight_recorder_dumps.SUBJECT,
        )
    return await flight_recorder_dumps.read_dumps(job, READ_DUMPS_LIMIT_S)


async def _record(rank: int | None, socket: Path | None) -> RankRecord | None:
    return await worker_server.fetch_record(socket, rank, RECORD_LIMIT_S) if socket and rank is not None else None


async def _nothing(default: T) -> T:
    return default


def _unreadable_stacks(first: Mapping[int, Sample]) -> list[str]:
    """Return the problems of processes whose stacks could not be read."""
    problems = [f"pid {pid}: {each.problem}" for pid, each in first.items() if each.problem not in ("", stacks.GONE)]
    more = len(problems) - MOST_PROBLEMS
    return problems[:MOST_PROBLEMS] + ([f"{more} more processes: stacks not readable"] if more > 0 else [])


def _hidden_files(first: Mapping[int, Sample]) -> list[str]:
    """Return a problem if stacks came through a socket but the kernel denies access to the open files."""
    alive = [pid for pid, each in first.items() if each.problem != stacks.GONE]
    hidden = [pid for pid in alive if not _shows_files(pid)]
    if not hidden:
        return []
    who = f"{len(hidden)} process{'es' if len(hidden) > 1 else ''}"
    return [
        f"connections, I/O and output files of {who}: not permitted: "
        f"{ptrace.access_problem(ptrace.read_access(hidden[0]))}"
    ]


def _shows_files(pid: int) -> bool:
    try:
        return bool((proc_files.PROC / str(pid) / "cwd").readlink())  # needs the same permission, and always exists
    except PermissionError:
        return False
    except OSError:
        return True  # it has ended


def process_samples(
    job: Job, samples: Sequence[Mapping[int, Sample]], around: SampleContext | None
) -> list[ProcessSamples]:
    """Return each process of the job with its samples and context."""
    around = around or SampleContext()
    below = around.children()
    found: list[ProcessSamples] = []
    for process in job.processes:
        output = around.output.get(process.pid)
        found.append(
            ProcessSamples(
                process=process,
                host=job.host,
                samples=[each[process.pid] for each in samples],
                children=below.get(process.pid, []),
                links=around.links.get(process.pid, []),
                devices=around.devices.get(process.pid, []),
                output=output.lines if output else [],
                output_from=output.path if output else "",
            )
        )
    return found
