"""``ddpwizard plan``: does it fit, which strategy is fastest, and why."""

import asyncio
import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import UserError
from ..options import Options, target_python
from ..plan import batch_scaling as batches
from ..plan import exact_memory as exactly
from ..plan import request, spec
from ..plan.job_files.write import missing_script_reason, render_job_files, script_path_from
from ..plan.job_files.write import write_job_files as write_files
from ..plan.request import PlanRequest
from ..plan.strategies import scaling_curve as curves
from ..plan.strategies.search import plan_candidates
from ..plan.strategies.search import planning_assumptions as also_assumed
from ..plan.strategies.table import render_table, rows_of_strategy
from ..plan.train_options import was_given
from ..plan.types import PlanRow
from ..system.files import read_regular_file
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line, print_progress
from .common import common_options
from .plan_options import question_options

if TYPE_CHECKING:
    from ..hardware.machine import Machine


@click.command(name="plan")
@click.option("--spec", "given", metavar="FILE", help="Everything as JSON; - is stdin.")
@question_options
@click.option("--reference-gpus", type=int, metavar="N", help="GPUs of a run before: what changes for its batch.")
@click.option("--lr", type=float, metavar="RATE", help="Learning rate of that run.")
@click.option("--keep-global-batch", is_flag=True, help="Take the accumulation that keeps that run's batch.")
@click.option("--curve", is_flag=True, help="Plot tokens per second over 1 to 64 GPUs.")
@click.option("--strategy", metavar="NAME", help="Only this one of the table, such as FSDP2 or ZeRO-3.")
@click.option("--write", metavar="DIR", help="Write the files of the best strategy: start line, configs, code.")
@click.option(
    "--script", metavar="FILE", default="train.py", help="The script the files start; the model is looked for in it."
)
@click.option(
    "--check", multiple=True, metavar="PATH", help="Only look whether the files of a job agree: a directory or files."
)
@click.option("--exact", is_flag=True, help="Also train the module itself on fake tensors, and track its peak.")
@click.option(
    "--batch", "batch_from", metavar="PKG.MOD:FN", help="With --exact: gives the inputs of a micro-batch; else tokens."
)
@common_options
def command(
    given: str | None,
    reference_gpus: int | None,
    lr: float | None,
    keep_global_batch: bool,
    curve: bool,
    strategy: str | None,
    write: str | None,
    script: str,
    check: tuple[str, ...],
    exact: bool,
    batch_from: str | None,
    options: Options,
    **values: Any,
) -> int:
    """DDP, FSDP or ZeRO for this model: what fits, in how much memory, and how fast.

    Memory is computed from the model's shape, to within a tenth for most; times are estimates. Ends with 1 when
    nothing fits, or nothing in practice.

    \b
    Examples:
      ddpwizard plan --model Llama-3.1-8B --seq-len 4096 --gpus 8 --gpu H100
      ddpwizard plan --checkpoint ./llama --machine p4d.24xlarge --nodes 2 --global-batch 512
      ddpwizard plan --params 7e9 --layers 32 --hidden 4096 --vocab 32000 --gpus 4 --gpu-memory 24GB
      ddpwizard plan --config ./llama --gpus 16 --nodes 2 --gpu H100 --reference-gpus 8 --lr 3e-4 --curve
      ddpwizard plan --spec setting.json --json

    \b
    A setting.json:
      {"model": {"params": 6.74e9, "layers": 32, "hidden": 4096, "heads": 32, "vocab": 32000},
       "train": {"dtype": "bf16", "micro_batch": 1, "seq_len": 4096},
       "gpus": 8, "nodes": 1, "gpu": "H100"}
    """
    if check:
        from .plan_check import check_files as look_at

        asked_too = [name for name in ("spec", *values) if was_given({"spec": given, **values}, name)]
        if asked_too:
            raise UserError(
                f"--{asked_too[0].replace('_', '-')} beside --check", "leave it out: --check looks at files only"
            )
        return look_at(check, options)
    if batch_from and not exact:
        raise UserError(
            "--batch without --exact", "leave it out, or add --exact; --micro-batch says how large a batch is"
        )
    if (keep_global_batch or lr is not None) and reference_gpus is None:
        raise UserError("compared with which run?", "name its GPUs with --reference-gpus N")
    if keep_global_batch and values["global_batch"] is not None:
        raise UserError("--keep-global-batch beside --global-batch: which batch?", "leave one of them out")
    asked = _question(given, values | {"script": script}, options)
    whole, links, assumed = asked.setting, asked.links, list(asked.assumed)
    batch = None
    if reference_gpus is not None:
        batch = batches.scale_batch(whole, reference_gpus, lr, values["global_batch"])
    if batch and keep_global_batch:
        whole, batch, kept = batches.keep_global_batch(whole, batch)
        assumed.append(kept)
    source = _source(asked, batch_from, options) if exact else None
    rows = plan_candidates(whole, links, asked.host_bytes, asked.recompute, asked.nvme_bytes)
    rows = rows_of_strategy(rows, strategy) if strategy is not None else rows
    assumed += also_assumed(rows, links, asked.host_bytes)
    compared = _tracked(rows, source) if source else []
    points = curves.scaling_points(whole, links, asked.host_bytes, asked.recompute) if curve else []
    if values["inter_gbps"] is None and whole.nodes == 1 and any(point.nodes > 1 for point in points):
        assumed.append(f"link between nodes: {links.inter_gbps:g} GB/s, where the curve has several: --inter-gbps")
    best, best_setting = rows[0]
    if write and best.fits is False:
        print_progress(f"nothing is written to {write}: no strategy fits, and {best.strategy} would run out of memory")
    elif write:
        from ..plan.job_files.package_versions import read_package_versions

        runs_with = read_package_versions(target_python(options))
        written = _write(
            Path(write), render_job_files(best_setting, script_path_from(Path(write), script), batch, runs_with)
        )
        rows[0] = PlanRow(msgspec.structs.replace(best, files=written), best_setting)
        names = [Path(name).name for name in written]
        if lacks := missing_script_reason(script, names):
            print_progress(lacks)
    candidates = [row.candidate for row in rows]
    if options.json:
        body = {
            "inputs": msgspec.to_builtins(whole) | {"links": links._asdict(), "assumed": assumed},
            "candidates": msgspec.to_builtins(candidates),
        }
        body |= {"batch": msgspec.to_builtins(batch)} if batch else {}
        body |= {"curve": msgspec.to_builtins(points)} if curve else {}
        body |= {"exact": msgspec.to_builtins(compared)} if compared else {}
        print_json(public_document("plan", None, body))
    else:
        more = [
            *(batches.describe_scaling(batch) if batch else []),
            *(curves.draw_curve(points, options.ascii) if curve else []),
        ]
        more += exactly.render_comparison(compared) if compared else []
        for line in [*render_table(whole, candidates, assumed, options.ascii), *more]:
            for part in _wrapped(line):
                print_line(part)
    if compared and all(each.problem for each in compared):
        return 3
    return 0 if any(each.fits is not False and each.in_practice for each in candidates) else 1


def _wrapped(line: str) -> list[str]:
    """A line as lines that a terminal has room for; as it is where none reads it."""
    if not sys.stdout.isatty():
        return [line]
    width = shutil.get_terminal_size().columns
    lead = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, width, subsequent_indent=lead + "  ") if len(line) > width > len(lead) + 20 else [line]


def _question(given: str | None, values: Mapping[str, Any], options: Options) -> PlanRequest:
    if given:
        return request.request_from_spec(_text(given), values)

    def look() -> "Machine":
        from ..plan.machine.detected import detect_machine

        return detect_machine(target_python(options))

    return request.request_from_options(values, lambda: target_python(options), look, print_progress)


def _source(asked: PlanRequest, batch: str | None, options: Options) -> exactly.ModuleSource:
    return exactly.resolve_module_source(
        target_python(options), asked.directory.absolute(), asked.factory, asked.config, batch
    )


def _tracked(rows: list[PlanRow], source: exactly.ModuleSource) -> list[exactly.TrackedStrategy]:
    """The rows that are worth it, tracked one after the other."""
    tracked: list[exactly.TrackedStrategy] = []
    for row in exactly.candidates_to_track(rows, source):
        print_progress(f"importing {source.imports} to track {row.candidate.strategy}; some 20 s for 7 B parameters")
        tracked.append(asyncio.run(exactly.track_candidate(row, source)))
    return tracked


def _write(directory: Path, made: dict[str, str]) -> list[str]:
    """Write the files into a directory, over none that is there; their paths.

    Raises:
        UserError: One is there already, or cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {directory}: {error.strerror}", "name another directory with --write") from error
    there = [name for name in made if (directory / name).exists()]
    if there:
        raise UserError(f"{directory / there[0]} is there already", "name an empty directory with --write")
    write_files(directory, made, "--write")
    for name in made:
        print_progress(f"wrote {directory / name}")
    return [str((directory / name).absolute()) for name in made]


def _text(given: str) -> bytes:
    if given == "-":
        return sys.stdin.buffer.read(spec.LIMIT_BYTES + 1)
    return read_regular_file(Path(given), spec.LIMIT_BYTES, "name a file with --spec, or - for stdin")
