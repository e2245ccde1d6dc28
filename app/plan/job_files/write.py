"""The files that run a candidate: a training project, or the user's own script; start scripts, configurations, jobs."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...errors import UserError
from ...hardware.machine import Machine
from ...launchers import accelerate, deepspeed, schedulers, torchrun
from ...system.atomic_files import replace_file
from ...text.units import GIB
from ..batch_scaling import BatchScaling
from ..model.parameter_counts import expert_width
from ..script_changes import split_changes, without_files
from ..strategies.ranking import shortage_text
from ..timing.communication import Links
from ..types import PlanRow, TrainingSetup
from . import configurations, project
from .manifest import FILE as MANIFEST
from .manifest import render_manifest
from .optimizer_snippets import steps_in_backward
from .project import weigh_accumulation

ENV_FILE = "env.sh"
HEAD = configurations.HEAD
MODES = {"launch.sh": 0o755, schedulers.SLURM_FILE: 0o755}
# The environment of every rank, with the reasons.
VARIABLES = {
    "PYTORCH_CUDA_ALLOC_CONF": (
        "expandable_segments:True",
        "Free memory in small pieces can be reused for larger tensors: fewer gaps.",
    ),
    "OMP_NUM_THREADS": ("4", "CPU threads per rank; torchrun sets 1 by default."),
    torchrun.OWN_STORE_VARIABLE: ("1", "A store of its own for each start: no addresses from before a restart."),
}
MAX_RESTARTS = 3
DIRECTORY = "ddpwizard-plan"
POD_RESTARTS = schedulers.Restarts(MAX_RESTARTS, claim="checkpoints", path="/checkpoints")


def render_job_files(
    setting: TrainingSetup,
    own_script: str = "",
    batch: BatchScaling | None = None,
    versions: Mapping[str, str | None] | None = None,
    links: Links | None = None,
) -> dict[str, str]:
    """Render the files of a complete setting with its strategy, name to content.

    ``own_script``: started instead of a new program. ``batch``: of the reference run it continues; ``versions``: of the
    packages where it runs; ``links``: of the plan.

    Raises:
        UnwritablePlanError: The files could not do what was planned.
    """
    _refuse([*_refusals(setting), *([] if own_script else _program_refusals(setting))])
    machine = _machine(setting)
    with_zero = setting.layout.kind == "deepspeed"
    script = f"./{own_script}" if own_script.startswith("-") else own_script or project.SCRIPT
    target = [script, "--deepspeed", deepspeed.FILE] if with_zero and own_script else [script]
    made = {
        "launch.sh": _launch(machine, target, with_zero and bool(own_script)),
        ENV_FILE: _environment(setting),
        MANIFEST: render_manifest(setting, batch, versions),
    }
    if own_script:
        made[accelerate.FILE] = configurations.render_accelerate_yaml(setting, machine, script, MAX_RESTARTS, True)
    else:
        stateful, accumulation = bool((versions or {}).get("torchdata")), weigh_accumulation(setting, links)
        made |= _program(setting, project.ProjectOptions(machine, accumulation, batch, stateful))
    if with_zero:
        made |= configurations.render_configs(setting, machine, batch)
    made[schedulers.SLURM_FILE] = schedulers.render_sbatch(machine, target, ENV_FILE, MAX_RESTARTS)
    in_pod = {name: value for name, (value, _) in VARIABLES.items()} | {"CHECKPOINTS": POD_RESTARTS.path}
    made[schedulers.PYTORCHJOB_FILE] = schedulers.render_pytorchjob(machine, target, in_pod, POD_RESTARTS)
    made[schedulers.TRAINJOB_FILE] = schedulers.render_trainjob(machine, target, in_pod, POD_RESTARTS)
    made[schedulers.JOBSET_FILE] = schedulers.render_jobset(machine, target, in_pod, POD_RESTARTS)
    return made


def write_job_files(directory: Path, made: Mapping[str, str], next_step: str = "name another directory") -> None:
    """Write the files into a directory, which is created; start scripts become executable.

    Raises:
        UserError: One of them exists already, or the directory cannot be written.
    """
    if existing := next((directory / name for name in made if os.path.lexists(directory / name)), None):
        raise UserError(f"{existing} exists already", next_step)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            replace_file(directory / name, content.encode(), MODES.get(name, 0o644))
    except OSError as error:
        raise UserError(f"cannot write {directory}: {error.strerror}", next_step) from error


class UnwritablePlanError(UserError):
    """Files of a plan would not do what it promises; ``next_step`` is the plan to make instead."""


def check_writable(row: PlanRow) -> None:
    """Check that files can be written for a strategy, whether they start a new program or a script of the user's.

    Raises:
        UnwritablePlanError: It does not fit, or has no template yet.
    """
    _refuse(_refusals(row.setting))
    if row.candidate.fits is False:
        raise UnwritablePlanError(
            f"{row.candidate.full_name} does not fit ({shortage_text(row)}): nothing is written",
            "take a strategy that fits; the table of strategies explains what would make this one fit",
        )


def free_directory(parent: Path) -> str:
    """Return a name for a directory that does not exist yet."""
    names = (DIRECTORY if number == 1 else f"{DIRECTORY}-{number}" for number in range(1, 1000))
    return next((name for name in names if not os.path.lexists(parent / name)), DIRECTORY)


def start_command(row: PlanRow, directory: str) -> str:
    """Return what starts the written files, on each of the nodes."""
    return f"sh {shlex.quote(directory)}/launch.sh{_on_each_node(row)}"


def start_lines(row: PlanRow, directory: str, made: Mapping[str, str]) -> list[str]:
    """Return the command that starts the written files, what comes before it, and those of other launchers."""
    inside, start = f"cd {shlex.quote(directory)} && ", start_command(row, directory)
    others = {"Slurm": f"{inside}sbatch {schedulers.SLURM_FILE}"}
    if accelerate.FILE in made:
        line = made[accelerate.FILE].partition("\n")[0].removeprefix("# ")
        others["Accelerate"] = f"{inside}{line}{_on_each_node(row)}"
    others["Kubernetes"] = f"{inside}kubectl apply -f {schedulers.PYTORCHJOB_FILE}"
    files = " and ".join(name for name in ("launch.sh", accelerate.FILE) if name in made)
    first = f"replace {HEAD} in {files} with the address of the first node" if row.setting.nodes > 1 else ""
    tiny = f"TINY=1 {start.partition('   #')[0]}   # a small model, on any machine" if project.SCRIPT in made else ""
    lines = {"first": first, "try": "" if first else tiny, "start": start}
    lines |= {f"with {launcher}": line for launcher, line in others.items()}
    return [f"{name}: {line}" for name, line in lines.items() if line]


def _on_each_node(row: PlanRow) -> str:
    return f"   # on each of the {row.setting.nodes} nodes" if row.setting.nodes > 1 else ""


def _program(setting: TrainingSetup, options: project.ProjectOptions) -> dict[str, str]:
    """Render a new program, and one for Accelerate if that can do the same."""
    made = project.render_project(setting, options)
    if configurations.does_project(setting):
        script = project.ACCELERATE_SCRIPT
        made[script] = project.render_accelerate_script(setting, options)
        made[accelerate.FILE] = configurations.render_accelerate_yaml(
            setting, options.machine, script, MAX_RESTARTS, False
        )
    return made


Refusal = tuple[object, str, str]  # condition, part of a plan that the files cannot do, and what to plan instead


def _refuse(refusals: Iterable[Refusal]) -> None:
    """Raise an error that names the parts whose condition holds, and what to plan instead of the first."""
    refused = [(part, instead) for is_asked, part, instead in refusals if is_asked]
    if refused:
        parts = ", ".join(part for part, _ in refused)
        raise UnwritablePlanError(f"the files cannot do all of this plan: {parts}", refused[0][1])


def _refusals(setting: TrainingSetup) -> Iterator[Refusal]:
    """Yield what no files can do, with a script of the user's neither."""
    train = setting.train
    yield without_files(setting), without_files(setting), " ".join(split_changes(setting))
    yield (
        train.fp8,
        "products in fp8",
        "leave out --fp8, and convert the model in train.py: torchao's convert_to_float8_training",
    )
    yield train.reference_model, "a reference model", "leave out --reference-model; TRL's DPOTrainer holds both models"


def _program_refusals(setting: TrainingSetup) -> Iterator[Refusal]:
    """Yield what a new program cannot do, or not in the memory that is planned."""
    kind = project.template_kind(setting)
    train, strategy, with_zero = setting.train, setting.layout, kind == "deepspeed"
    loss = train.loss == "fused-linear" or (with_zero and train.loss not in (None, "eager"))
    optimizer = kind == "fsdp2" and train.optimizer == "adafactor"  # it cannot step on sharded tensors (torch 2.13)
    in_backward = train.optimizer_in_bwd and not steps_in_backward(train, kind)
    yield from (
        (strategy.kind == "fsdp1", "fsdp1", "plan for fsdp2"),
        (optimizer, f"the optimizer {train.optimizer} with {strategy.kind}", "plan for another optimizer: adamw"),
        (train.quant, f"frozen weights in {train.quant}", "plan without --quant, or quantize in your own script"),
        (in_backward, "optimizer steps within the backward pass", "plan for fsdp2 without accumulation"),
        (loss, f"a {train.loss} loss", "plan with --loss chunked, or eager for DeepSpeed"),
        (
            train.optimizer_state_dtype and not with_zero,
            f"optimizer states in {train.optimizer_state_dtype}",
            "plan without optimizer_state_dtype",
        ),
        (
            train.optimizer == "muon" and strategy.stage == 3,  # seen with 0.19.8; DeepSpeed #8443
            "Muon with ZeRO-3, under which DeepSpeed's loss does not fall",
            "plan for ZeRO-2 or fsdp2",
        ),
        *_split_refusals(setting),
        (with_zero and train.frozen, "frozen weights with DeepSpeed", "plan for fsdp2 or ddp"),
        (with_zero and train.compile, "torch.compile with DeepSpeed", "plan without --compile"),
    )


def _split_refusals(setting: TrainingSetup) -> Iterator[Refusal]:
    """Yield what the files cannot do of a plan that splits layers or sequences."""
    train, model, splits = setting.train, setting.model, setting.layout.splits
    tensor, context, expert = splits["tensor"], splits["context"], splits["expert"]
    if not setting.layout.splits_model:
        return
    yield train.compile, "torch.compile with layers, sequences or experts that are split", "plan without --compile"
    sizes = [("tokens", train.seq_len, 2 * context if context > 1 else tensor)]
    if tensor > 1 or expert > 1:
        layers = "split layers" if tensor > 1 else "split experts"
        optimizer = train.optimizer in ("adamw-8bit", "paged-adamw-8bit")
        yield train.lora, f"adapters on {layers}", "plan for fsdp2 alone"
        yield optimizer, f"{train.optimizer} with {layers}", "plan for another optimizer: adamw"
    if tensor > 1:
        yield train.act_offload, "activations of split layers on the host", "plan without --act-offload"
        yield train.loss == "compiled", "a compiled loss of split logits", "plan with --loss chunked"
        sizes += [("key and value heads", model.kv_heads, tensor), ("feed-forward columns", model.intermediate, tensor)]
    if expert > 1:
        groups, reshard = setting.gpus // expert, setting.layout.reshard_after_forward
        yield type(reshard) is int, f"resharding of split experts to {reshard} ranks", "plan for fsdp2 alone"
        sizes += [("rows of an expert", model.hidden, groups), ("columns of an expert", expert_width(model), groups)]
    for name, size, parts in sizes:
        yield (size or 0) % parts, f"{size} {name} in {parts} parts", "give sizes that can be divided"


def _machine(setting: TrainingSetup) -> Machine:
    return Machine(
        gpu_count=setting.gpus // setting.nodes,
        gpu_memory_bytes=int((setting.gpu_memory_gib or 0) * GIB),
        gpu_name=setting.gpu or "",
        nodes=setting.nodes,
        head=HEAD,
    )


def _launch(machine: Machine, target: list[str], reads_json: bool) -> str:
    if machine.nodes > 1:
        line = torchrun.torchrun_line_for_nodes(machine, target, MAX_RESTARTS)
        where = f"on each node; replace {HEAD} with the address of the first"
    else:
        line, where = torchrun.torchrun_line(machine, target, MAX_RESTARTS), "on the node"
    what = f"{machine.ranks * machine.nodes} ranks" if machine.ranks * machine.nodes > 1 else "one process"
    comment = f"# Starts {what}. A failed run starts again, {MAX_RESTARTS} times at most. Run it {where}.\n"
    comment += f"# The script must read {' '.join(target[1:])}, as the Trainer of transformers does.\n" * reads_json
    return f'#!/bin/sh\n{comment}set -eu\ncd "$(dirname "$0")"\n. ./env.sh\nexec {line}\n'


def _environment(setting: TrainingSetup) -> str:
    lines = ["# The environment of every rank: launch.sh and job.slurm read it."]
    for name, (value, why) in VARIABLES.items():
        lines += [f"# {why}", f"export {name}={shlex.quote(value)}"]
    if setting.nodes > 1:
        lines += ["# The network interface between the nodes, if NCCL chooses another:"]
        lines += ["# export NCCL_SOCKET_IFNAME=eth0"]
    return "\n".join(lines) + "\n"
