"""The data collected of each process of a job, as plain data for the triage document."""

from typing import Any

import msgspec

from ..text import redact
from ..training_script.frame import StackFrame
from .types import JobReport, ProcessSamples


def process_rows(report: JobReport) -> list[dict[str, Any]]:
    """Return a row for each process: resource use, threads, children, connections, GPUs and last output.

    Secrets are removed from command lines and output.
    """
    return [_process(seen) for seen in report.observed.seen]


def _process(seen: ProcessSamples) -> dict[str, Any]:
    first, last = (seen.samples[0], seen.samples[-1]) if seen.samples else (None, None)
    row: dict[str, Any] = {
        "rank": seen.process.rank,
        "rank_from": seen.process.rank_from,
        "pid": seen.process.pid,
        "host": seen.host,
        "command": redact.redact_command(seen.process.command),
    }
    if first and last:
        row |= {
            "looks": len(seen.samples),
            "seconds": round(last.at - first.at, 2),
            "process_state": last.process_state,
            "cpu_seconds": round(last.cpu_s - first.cpu_s, 3),
            "switches": last.switches - first.switches,
            "read_bytes": last.read_bytes - first.read_bytes,
            "written_bytes": last.written_bytes - first.written_bytes,
            "kernel_function": last.waits_in,
            "stack": [_frame(frame) for frame in last.stack],
            "threads": [
                {"name": thread.name, "stack": [_frame(frame) for frame in thread.frames]} for thread in last.others
            ],
        }
    children = [
        msgspec.to_builtins(child) | {"stack": [_frame(frame) for frame in child.stack]} for child in seen.children
    ]
    return redact.redact_record(
        row
        | {
            "children": children,
            "links": msgspec.to_builtins(seen.links),
            "devices": msgspec.to_builtins(seen.devices),
            "output": seen.output,
            "output_from": seen.output_from,
        }
    )


def _frame(frame: StackFrame) -> str:
    return f"{frame.function} ({frame.path}:{frame.line})"
