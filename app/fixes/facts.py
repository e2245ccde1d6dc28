"""The facts of a case that fixes name: the user's files and command line, the failing rank, the port, the time-out.

The names of the values and of the conditions are declared in ``knowledge/facts.yaml``.
"""

import ast
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from ...knowledge.schema import Cause
from ..evidence import Evidence, rule_of_finding
from ..jobs.script_path import script_of_job
from ..jobs.types import Process
from ..launchers.arguments import LauncherCommand, parse_launcher
from ..launchers.recognise import parse_python
from ..logs.first_failure import script_location
from ..logs.timeline import all_events
from ..logs.types import Timeline, TimelineEvent, Track
from ..review.types import ReviewFinding
from ..snapshot import Snapshot
from ..system.paths import relative_to, relative_to_cwd
from ..text.units import rank_ranges, seconds_text
from ..training_script.syntax import call_argument
from ..triage.rank_activity.frames import user_frames
from ..triage.types import JobReport
from .job_facts import is_started_by_hand, job_values, loader_has_workers, machine_values, stuck_workers
from .log_facts import first_error, is_late, log_values, named_scripts
from .typed_command import command_elsewhere, typed_command, usual_command
from .types import Place
from .user_code import UserFile, read_user_files, variable_names

LOCAL_RANK_ARGUMENT = re.compile(r"arguments?(?: are required)?: .{0,200}--local[-_]rank")
LOCATION = re.compile(r"(?P<path>.+):(?P<line>\d+)(?: in (?P<function>.+))?$")
# Values that other processes claim and that stand in commands to copy: anything but a plain word is left out.
IN_COMMANDS = {
    "port",
    "host",
    "master_addr",
    "interface",
    "pid",
    "ranks",
    "ranks_per_node",
    "nodes",
    "workers",
    "world",
}
PLAIN_WORD = re.compile(r"[\w.:%\[\]-]{1,255}", re.ASCII)
ENOUGH_SHM_BYTES = 4 << 30
LONGER = 4  # a time-out that ran out is raised to this multiple
SHOWN_SEEN = 2
PORT_OPTIONS = ("master-port", "main-process-port")
EVIDENCE_VALUES = ("port", "host", "parameters", "holder_pid", "holder_size", "world")


class FixContext(msgspec.Struct, frozen=True, kw_only=True):
    """The material that a fix is built from. Any of it may be missing. ``script`` is a path, ``launch`` the command
    line that started the job, if no job was seen, ``directory`` the one in which it was started, by default the working
    directory, ``output`` what ranks that failed printed last."""

    snapshot: Snapshot | None = None
    script: str | None = None
    report: JobReport | None = None
    findings: list[ReviewFinding] = []
    evidence: list[Evidence] = []
    timeline: Timeline | None = None
    launch: list[str] = []
    directory: str = ""
    output: Timeline | None = None


class CaseFacts:
    """The facts of one case, read from its context when they are needed."""

    def __init__(self, context: FixContext) -> None:
        self.context = context

    @cached_property
    def values(self) -> dict[str, str]:
        """The named values for the templates of entries; only those that are known, the command line apart."""
        found: dict[str, str] = {}
        for name, value in (
            *self._from_launch(),
            *self._from_evidence(),
            *machine_values(self.context.snapshot, self.context.report),
            *log_values(self.context.timeline),
            *job_values(self.context.report),
        ):
            if value and (name not in IN_COMMANDS or PLAIN_WORD.fullmatch(value)):
                found[name] = value
        if self.target:
            found.setdefault("target", shlex.join(self.target))
            script = next((word for word in self.target if not word.startswith("-")), "")
            found.setdefault("script", shlex.quote(script) if script else "")
        if timeout := self._timeout_s:
            found["timeout"] = seconds_text(timeout, whole=True)
            found["longer_minutes"] = str(max(1, round(timeout * LONGER / 60)))
        return found

    @cached_property
    def holds(self) -> frozenset[str]:
        """The ids of the findings and of the conditions that hold in this case."""
        return frozenset({*(item.id for item in self.context.evidence), *self._verdict_findings(), *self._conditions()})

    @cached_property
    def directory(self) -> Path:
        """The directory from which the command lines count their paths: that of the job, else the working directory."""
        started = next((each.cwd for each in self._processes if each.cwd), "") or self.context.directory
        return Path(started) if started else Path.cwd()

    @cached_property
    def target(self) -> list[str]:
        """The script and its arguments in a launcher's form: from the running job, else the script alone."""
        for process in self._processes:
            if python := parse_python(process.command):
                return python.script_words
        if self._launch:
            return self._launch.script_words
        of_error = self._main_of_error or (self.error_place.path if self.error_place else "")
        script = self.context.script or next(named_scripts(self.context.timeline), of_error)
        if not script:
            return []
        script = relative_to(script, self.directory)
        return [f"./{script}" if script.startswith("-") else script]

    @property
    def _main_of_error(self) -> str:
        event = self.first_error[1]
        return event.values.get("main", "") if event else ""

    @cached_property
    def command(self) -> str:
        """The command line with which the job was started, as a person types it, or "" if nothing shows it."""
        if typed := typed_command(self._launch_words):
            return typed
        if self.context.timeline or not self.context.script:
            return ""
        answers = {item.id for item in self.context.evidence}
        return usual_command(self.target, answers, spawns_ranks=any(self.calls(["spawn"])))

    @property
    def command_elsewhere(self) -> str:
        """The command line of a job of one node with another rendezvous, or ""."""
        return command_elsewhere(self._launch)

    @property
    def _launch_words(self) -> list[str]:
        return self.context.report.job.launcher_command if self.context.report else self.context.launch

    @cached_property
    def _launch(self) -> LauncherCommand | None:
        return parse_launcher(self._launch_words) if self._launch_words else None

    @cached_property
    def files(self) -> list[UserFile]:
        """The files of the user's code, those that the case points at first."""
        return read_user_files(self._paths())

    @cached_property
    def names(self) -> dict[str, str]:
        """The user's names of the variables that entries use in code."""
        return variable_names(self.files)

    def places(self, cause: str) -> list[Place]:
        """Return the lines of the verdict on this cause, the condition first; of a log, that of the first error."""
        report = self.context.report
        found: list[Place] = []
        if report and report.verdict.cause == cause:
            verdict = report.verdict
            there = [row.rank for row in report.ranks if row.where == verdict.where]
            ranks = [rank for rank in verdict.culprits if rank in there] or verdict.culprits
            who = f"rank {rank_ranges(ranks)}" if ranks else "the ranks"
            for where, label in ((verdict.branch, "the condition"), (verdict.where, who)):
                if where and (place := self.place(where, label)):
                    found.append(place)
        if not found and self.error_place:
            found.append(self.error_place)
        return list({(place.path, place.line): place for place in found}.values())

    def reviewed(self, cause: str) -> list[Place]:
        """Return the places at which the review has found a cause."""
        return [
            Place(path=each.path, line=each.line, text=self.line_text(each.path, each.line), label=each.rule)
            for each in self.context.findings
            if each.cause == cause
        ]

    @cached_property
    def divergences(self) -> list[Evidence]:
        """The findings of the review on collectives that the ranks do not reach alike."""
        found = [item for item in self.context.evidence if item.source == "review"]
        if not found:
            return []
        from ..review.rules.divergences import RULES  # loads the model of scripts

        return [item for item in found if rule_of_finding(item.id) in RULES]

    @cached_property
    def error_place(self) -> Place | None:
        """The line of the user's code with the first error of a log, or None."""
        event = self.first_error[1]
        place = self.place(script_location(event), "the first error") if event else None
        code = event.values.get("code", "") if event else ""  # the file may have changed since
        return msgspec.structs.replace(place, text=code) if place and code else place

    @cached_property
    def first_error(self) -> tuple[Track | None, TimelineEvent | None]:
        """The first error of the log, or of the output of the job, and the rank that it is of."""
        found = first_error(self.context.timeline)
        return found if found[1] else first_error(self.context.output)

    def place(self, where: str, label: str = "") -> Place | None:
        """Return the place of ``path:line`` with the text of its line, or None if it names no line."""
        match = LOCATION.match(where)
        if not match or match["path"].startswith("<"):
            return None
        path, line = match["path"], int(match["line"])
        return Place(path=path, line=line, text=self.line_text(path, line), label=label)

    def line_text(self, path: str, line: int) -> str:
        """Return a line of one of the user's files without its indentation, or "".

        Of a job it is the line that its ranks run, which the file may not have any more.
        """
        started_with = self.context.report.sources.get(path, "").splitlines() if self.context.report else []
        if 0 < line <= len(started_with):
            return started_with[line - 1].strip()
        file = self._file(path)
        return file.line(line) if file else ""

    def file_as_started(self, path: str) -> UserFile | None:
        """Return a file of the user's if it is still the one that the ranks of the job started with, else None."""
        started_with = self.context.report.sources.get(path) if self.context.report else None
        found = self._file(path)
        return found if found and started_with in (None, found.text) else None

    def _file(self, path: str) -> UserFile | None:
        """Return the file of the user's at a path, or None."""
        wanted = Path(path).absolute()
        return next((file for file in self.files if Path(file.path).absolute() == wanted), None)

    def calls(self, wanted: Iterable[str]) -> Iterator[tuple[UserFile, ast.Call]]:
        """Yield the calls of these functions and methods in the user's files."""
        names = list(wanted)
        for file in self.files:
            for call in file.calls(names):
                yield file, call

    def seen(self, cause: Cause) -> list[Place]:
        """Return the places of the observations that support a cause: lines of a log or of a script."""
        own = {*(id_ for id_, weight in cause.findings.items() if weight != "against")}
        found: list[Place] = []
        for item in self.context.evidence:
            if item.id in own or item.id.startswith(f"log:{cause.id}/"):
                place = self.place(item.where, _origin_prefix(item) + item.what)
                found += [place] if place else []
        return found[:SHOWN_SEEN]

    # -- the sources

    @property
    def _processes(self) -> list[Process]:
        return self.context.report.job.processes if self.context.report else []

    def _paths(self) -> Iterator[str]:
        context = self.context
        report = context.report
        if report:
            for where in (report.verdict.branch, report.verdict.where):
                yield (where or "").rpartition(":")[0]
            culprits = set(report.verdict.culprits)
            for seen in sorted(report.observed.seen, key=lambda each: each.process.rank not in culprits):
                for sample in seen.samples[-1:]:
                    yield from (frame.path for frame in reversed(user_frames(sample.stack)))
            yield script_of_job(report.job)
        if context.script:
            yield context.script
        yield from (finding.path for finding in context.findings)
        for attempt in context.timeline.attempts[-1:] if context.timeline else []:
            for _, event in all_events(attempt):
                if match := LOCATION.match(event.values.get("location", "")):
                    yield match["path"]
        yield from named_scripts(context.timeline)

    def _from_launch(self) -> Iterator[tuple[str, str]]:
        if self._launch:
            yield from (("port", self._launch.value(option) or "") for option in PORT_OPTIONS)

    def _from_evidence(self) -> Iterator[tuple[str, str]]:
        for item in reversed(self.context.evidence):  # the first one counts
            yield from ((name, item.values.get(name, "")) for name in EVIDENCE_VALUES)
            yield "rank", str(item.rank) if item.rank is not None and item.source == "log" else ""
            if item.source == "log" and item.where:
                yield "log", relative_to_cwd(item.where.rpartition(":")[0])

    @cached_property
    def _timeout_s(self) -> float | None:
        values = (item.values.get("timeout_ms", "") for item in self.context.evidence)
        return next((int(value) / 1000 for value in values if value.isdigit()), None)

    def _verdict_findings(self) -> list[str]:
        return self.context.report.verdict.findings if self.context.report else []

    def _conditions(self) -> Iterator[str]:
        limits = self.context.snapshot.limits if self.context.snapshot else None
        if limits and (limits.shm_free_bytes or 0) >= ENOUGH_SHM_BYTES:
            yield "case.shm-roomy"
        loaders = [call for _, call in self.calls(["DataLoader"])]
        has_workers = loader_has_workers(self.context.report)  # the job shows it, whatever the script may say
        if has_workers is not None or loaders:
            is_so = any(map(_has_workers, loaders)) if has_workers is None else has_workers
            yield "case.loader-has-workers" if is_so else "case.loader-has-no-workers"
        if next(stuck_workers(self.context.report), None):
            yield "case.loader-worker-known"
        if any("bytes" in item.values for item in self.context.evidence) and not self.divergences:
            yield "case.sizes-differ"
        if self.first_error[1] or (self.context.report and self.context.report.observed.deaths):
            yield "case.first-error-known"
        elif self.context.report and self.context.report.verdict.culprits:
            yield "case.failed-rank-known"
        if self._error_is_in_load():
            yield "case.error-while-loading"
        elif self.error_place:
            yield "case.error-in-step"
        if self.error_place and self.first_error[1]:
            yield "case.error-is-late" if is_late(self.first_error[1].text) else "case.error-at-its-line"
        if any(LOCAL_RANK_ARGUMENT.search(item.what) for item in self.context.evidence):
            yield "case.local-rank-argument"
        if self.context.report and is_started_by_hand(self.context.report):
            yield "case.started-by-hand"
        if self.context.report and len(self.context.report.nodes) == 1:
            yield "case.one-host"
        if self.context.report and len(self.context.report.nodes) > 1:
            yield "case.several-hosts"

    def _error_is_in_load(self) -> bool:
        place, event = self.error_place, self.first_error[1]
        function = event.values.get("location", "").partition(" in ")[2] if event else ""
        return bool(place) and ("load" in function or "load" in place.text)


def _has_workers(call: ast.Call) -> bool:
    given = call_argument(call, "num_workers", 5)
    return given is not None and not (isinstance(given, ast.Constant) and given.value == 0)


def _origin_prefix(item: Evidence) -> str:
    rank = f"rank {item.rank}" if item.rank is not None else ""
    host = f"on {item.host}" if item.host else ""
    return f"{' '.join(part for part in (rank, host) if part)}: " if rank or host else ""
