"""``ddpwizard plan``: which strategies fit, which is the fastest, and why."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ..errors import UserError
from ..exit_codes import ExitCode
from ..options import Options, target_python
from ..plan import batch_scaling, exact_comparison, exact_memory, model_source, plan_answer, request, spec, summary
from ..plan.model_source import SCRIPT
from ..plan.request import PlanRequest
from ..plan.strategies.table import render_table, rows_of_strategy
from ..plan.types import PlanRow
from ..system.files import read_regular_file
from ..text.json_output import print_json, public_document
from ..text.terminal import print_line, print_progress
from ..text.units import gbps_text
from .common import common_options
from .plan_options import GroupedCommand, plan_options

if TYPE_CHECKING:
    from ..hardware.machine import Machine


@click.command(name="plan", cls=GroupedCommand)
@plan_options
@common_options
def command(
    given: str | None,
    reference_gpus: int | None,
    lr: float | None,
    keep_global_batch: bool,
    curve: bool,
    strategy: str | None,
    write: str | None,
    script: str | None,
    exact: bool,
    batch_from: str | None,
    options: Options,
    **values: Any,
) -> int:
    """Compare DDP, FSDP and ZeRO for a model: what fits, in how much memory, and how fast.

    Memory is computed from the model's shape, for most models to within 10 %; times are estimates. The exit code is 1
    if no strategy fits, all that fit are too slow, or --write cannot write what is planned.

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
    if batch_from and not exact:
        raise UserError("--batch without --exact", "leave it out, or add --exact; --micro-batch sets the batch size")
    if (keep_global_batch or lr is not None) and reference_gpus is None:
        raise UserError("compared with which run?", "name its GPUs with --reference-gpus N")
    script = script or SCRIPT
    resolved = _request(given, values | {"script": script}, options)
    if keep_global_batch and resolved.global_batch is not None:
        raise UserError("--keep-global-batch and --global-batch: which batch?", "leave one of them out")
    whole, batch = resolved.setting, None
    if reference_gpus is not None and keep_global_batch:
        earlier = batch_scaling.scale_batch(whole, reference_gpus, lr, None)
        whole, batch, kept = batch_scaling.keep_global_batch(whole, earlier)
        resolved = resolved._replace(setting=whole, assumed=[*resolved.assumed, kept])
    module = (
        exact_memory.resolve_module_source(target_python(options), resolved.source, batch_from or "") if exact else None
    )
    found = plan_answer.make_answer(resolved)
    found = found._replace(rows=plan_answer.explain_rows(found))
    if strategy is not None:
        found = found._replace(rows=rows_of_strategy(found.rows, strategy))
    compared = _track(found.rows, module) if module else {}
    found = plan_answer.with_tracked(found, compared)
    rows, assumed = found.rows, plan_answer.assumptions(found)
    if resolved.chooses_micro_batch:
        chosen = rows[0].candidate
        whole = whole.with_train(micro_batch=chosen.micro_batch, grad_accum=chosen.grad_accum)
    if reference_gpus is not None and not batch:
        batch = batch_scaling.scale_batch(whole, reference_gpus, lr, resolved.global_batch)
    more_gpus = ""
    if strategy is None and plan_answer.wants_more(rows[0]):
        more_gpus = str(summary.summary_lines(plan_answer.add_scaling(found))[-1])
    points = plan_answer.scaling_points(resolved) if curve else []
    if values["inter_gbps"] is None and whole.nodes == 1 and any(point.nodes > 1 for point in points):
        between = gbps_text(resolved.links.inter_gbps)
        assumed.append(f"link between nodes: {between}, where the curve has several: --inter-gbps")
    best, best_setting = rows[0]
    is_refused = False
    if write:
        from ..plan.job_files.manifest import read_package_versions
        from ..plan.job_files.own_script import plan_job_files
        from ..plan.job_files.write import UnwritablePlanError, check_writable, start_lines, write_job_files

        try:
            check_writable(rows[0])
            versions = read_package_versions(target_python(options))
            made = plan_job_files(best_setting, Path(write), script, batch, versions, resolved.links)
            files = [Path(write) / name for name in made.files]
            write_job_files(Path(write), made.files, "name another directory with --write")
            written = [str(file.absolute()) for file in files]
            rows[0] = PlanRow(msgspec.structs.replace(best, files=written), best_setting)
            wrote = (f"wrote {file}" for file in files)
            for note in (*wrote, *made.notes, *start_lines(rows[0], write, made.files)):
                print_progress(note)
        except UnwritablePlanError as problem:
            is_refused = True
            print_progress(f"nothing is written to {write}: {problem.message}; {problem.next_step}")
    candidates = [row.candidate for row in rows]
    if options.json:
        body = {
            "inputs": msgspec.to_builtins(whole) | {"links": resolved.links._asdict(), "assumed": assumed},
            "candidates": msgspec.to_builtins(candidates),
        }
        body |= {"batch": msgspec.to_builtins(batch)} if batch else {}
        body |= {"curve": msgspec.to_builtins(points)} if curve else {}
        body |= {"exact": msgspec.to_builtins(list(compared.values()))} if compared else {}
        body |= {"more_gpus": more_gpus} if more_gpus else {}
        print_json(public_document("plan", None, body))
    else:
        more = [
            *(batch_scaling.describe_scaling(batch) if batch else []),
            *(plan_answer.draw_curve(points, options.ascii) if curve else []),
        ]
        more += exact_comparison.render_comparison(list(compared.values())) if compared else []
        for line in [*render_table(whole, candidates, assumed, options.ascii, more_gpus), *more]:
            print_line(line)
    if compared and all(each.problem for each in compared.values()):
        return ExitCode.NOT_INSPECTED
    fitting = any(each.works for each in candidates)
    return ExitCode.OK if fitting and not is_refused else ExitCode.FOUND


def _request(given: str | None, values: Mapping[str, Any], options: Options) -> PlanRequest:
    if given == "-":
        return request.request_from_spec(sys.stdin.buffer.read(spec.LIMIT_BYTES + 1), values)
    if given:
        next_step = "name a file with --spec, or - for stdin"
        return request.request_from_spec(read_regular_file(Path(given), spec.LIMIT_BYTES, next_step), values)

    def detect() -> "Machine":
        from ..plan.machine import detect_machine

        return detect_machine(target_python(options))

    build = model_source.build_in_child(lambda: target_python(options), print_progress)
    return request.resolve_request(values, build, detect)


def _track(rows: list[PlanRow], module: exact_memory.ModuleSource) -> dict[str, exact_memory.TrackedStrategy]:
    """Track the strategies worth it, one after the other, and return them by the full name of their row."""
    tracked: dict[str, exact_memory.TrackedStrategy] = {}
    for row in exact_memory.candidates_to_track(rows, module):
        print_progress(
            f"importing {module.imports} to track {row.candidate.strategy}; takes about 20 s for 7 B parameters"
        )
        tracked[row.candidate.full_name] = asyncio.run(exact_memory.track_candidate(row, module))
    return tracked
