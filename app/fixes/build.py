"""Build the fixes of a cause for a case: patches by the rules of the review, the rest by generators."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from ...knowledge.schema import Cause, FixSpec, Knowledge
from ..errors import UserError
from ..hardware.machine import Machine, machine_from_snapshot
from ..jobs.types import Process
from ..launchers import accelerate, deepspeed, env_file, schedulers, torchrun
from ..launchers.recognise import parse_python
from ..launchers.types import GeneratedFix
from ..review.types import ReviewFinding
from ..snapshot import Snapshot
from ..triage.types import JobReport
from . import code_templates
from .types import FilePatch, Fix

Generator = Callable[[Machine, list[str]], GeneratedFix]

# The generators that a knowledge entry may name. Each takes the machine and the script with its arguments.
GENERATORS: dict[str, Generator] = {
    "torchrun-single-node": torchrun.single_node,
    "torchrun-multi-node": torchrun.multi_node,
    "free-port-command": torchrun.free_port_command,
    "unset-launch-env": torchrun.unset_launch_env,
    "shm-size": torchrun.shm_size,
    "accelerate-ddp": accelerate.accelerate_ddp,
    "accelerate-fsdp2": accelerate.accelerate_fsdp2,
    "accelerate-deepspeed": accelerate.accelerate_deepspeed,
    "deepspeed-json": deepspeed.deepspeed_json,
    "deepspeed-hostfile": deepspeed.deepspeed_hostfile,
    "slurm-script": schedulers.slurm_script,
    "kubernetes-manifest": schedulers.kubernetes_manifest,
    "ddp-code": code_templates.ddp_code,
    "fsdp2-code": code_templates.fsdp2_code,
    "join-context": code_templates.join_context,
    "find-unused": code_templates.find_unused,
    "env-file": env_file.env_file,
    "pin-interface": env_file.pin_interface,
}


class FixContext(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a fix is built from. Any of them may be missing."""

    snapshot: Snapshot | None = None
    script: str | None = None
    report: JobReport | None = None
    findings: list[ReviewFinding] = []


def build_fixes(cause: Cause, context: FixContext, knowledge: Knowledge) -> list[Fix]:
    """Build the fixes of a cause in the order of its entry.

    A fix that lacks facts has text only (``display``), which names the missing ones. Reads the scripts that patches
    are for; writes nothing.
    """
    machine, target = machine_from_snapshot(context.snapshot), target_of(context)
    return [
        _patch(cause, spec, context, knowledge) if spec.kind == "patch" else _generated(cause, spec, machine, target)
        for spec in cause.fixes
    ]


def target_of(context: FixContext) -> list[str]:
    """Return the script and its arguments in a launcher's form: from the running job, else the script alone."""
    processes = context.report.job.processes if context.report else []
    for process in processes:
        if python := parse_python(process.command):
            return python.script_words
    if not context.script:
        return []
    return [f"./{context.script}" if context.script.startswith("-") else context.script]


def _generated(cause: Cause, spec: FixSpec, machine: Machine, target: list[str]) -> Fix:
    made = GeneratedFix(text="")
    if spec.generator in GENERATORS:
        made = GENERATORS[spec.generator](machine, target)
    elif spec.generator:
        made = GeneratedFix(text=f"This ddpwizard has no generator {spec.generator!r}.")
    return Fix(
        id=spec.id,
        cause=cause.id,
        title=spec.title,
        safety=spec.safety if made.files else "display",
        why_unsafe=spec.why_unsafe if made.files else "",
        text="\n\n".join(part for part in (spec.text.strip(), made.text) if part),
        code=spec.code.rstrip(),
        note=spec.note.strip(),
        commands=made.commands,
        files=made.files,
    )


def _nothing_to_patch(scripts: Sequence[str]) -> str:
    if not scripts:
        return "The script is not known: ddpwizard review SCRIPT shows the place and the patch."
    return f"No place in {', '.join(scripts)} can be patched automatically; fix it by hand."


def _patch(cause: Cause, spec: FixSpec, context: FixContext, knowledge: Knowledge) -> Fix:
    from ..review import review  # loads the rules, which only patches need
    from ..training_script.source import read_source

    patches: list[FilePatch] = []
    repaired: list[ReviewFinding] = []
    by_hand: list[str] = []
    for path in _scripts(spec.rule, context):
        try:
            before = read_source(Path(path))[1]
            after, done = review.apply_fixes(before, path, knowledge, {spec.rule}, {"safe", "unsafe"})
            left = review.review_text(after, path, knowledge, {spec.rule})
        except UserError as error:
            by_hand.append(str(error))
            continue
        if done:
            patches.append(FilePatch(path=path, before=before, after=after))
            repaired += done
        by_hand += [f"{finding.path}:{finding.line}: {finding.message}" for finding in left]
    if not patches and not by_hand:
        by_hand.append(_nothing_to_patch(_scripts(spec.rule, context)))
    made = [finding.fix for finding in repaired if finding.fix]
    unsafe = next((fix for fix in made if fix.safety == "unsafe"), None)
    return Fix(
        id=spec.id,
        cause=cause.id,
        title=spec.title,
        safety="display" if not patches else "unsafe" if unsafe else "safe",
        why_unsafe=(unsafe.why_unsafe or spec.why_unsafe) if unsafe else "",
        text="\n\n".join(part for part in (spec.text.strip(), "\n".join(by_hand)) if part),
        code=spec.code.rstrip(),
        note=spec.note.strip(),
        patches=patches,
    )


def _scripts(rule: str, context: FixContext) -> list[str]:
    """Return the files to patch: those of the review's findings, or else the script and the files where the job is."""
    found = [finding.path for finding in context.findings if finding.rule == rule]
    if found:
        return list(dict.fromkeys(found))
    candidates = [*([context.script] if context.script else []), *_files_of(context.report)]
    once: dict[Path, str] = {}
    for path in candidates:
        once.setdefault(Path(path).absolute(), path)
    return list(once.values())


def _files_of(report: JobReport | None) -> Iterator[str]:
    if report is None:
        return
    for where in (report.verdict.branch, report.verdict.where):
        if where:
            yield where.rpartition(":")[0]
    for process in report.job.processes[:1]:
        if script := _script_of(process):
            yield script


def _script_of(process: Process) -> str:
    python = parse_python(process.command)
    is_file = python is not None and not python.is_module and python.target.endswith(".py")
    return str(Path(process.cwd) / python.target) if python and is_file else ""
