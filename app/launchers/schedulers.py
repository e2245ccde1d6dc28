"""Jobs for schedulers: a Slurm script, and manifests for Kubernetes.

Several manifests, as clusters differ in what is installed: PyTorchJob (``kubeflow.org/v1``, Training Operator 1.9),
TrainJob (``trainer.kubeflow.org/v1alpha1``, Kubeflow Trainer 2) and JobSet (``jobset.x-k8s.io/v1alpha2``, 0.9), which
needs no Kubeflow. All start torchrun with --node-rank, not c10d: with c10d the first node must resolve its own name,
which may not work yet while its pod starts. A pod that fails therefore cannot join again alone: the manifest restarts
all of them.
Slurm's options: slurm.schedmd.com/sbatch.html (25.05).
"""

import re
import shlex
from typing import Any, NamedTuple

from ..hardware.machine import Machine
from ..text.yaml_output import render_yaml
from .torchrun import (
    GIB,
    SHM_PER_RANK_BYTES,
    STAND_IN_SCRIPT,
    advice_only,
    as_multi_node,
    job_name,
    nodes_text,
    restart_options,
)
from .types import GeneratedFix

SLURM_FILE, PYTORCHJOB_FILE, JOBSET_FILE = "job.slurm", "pytorchjob.yaml", "jobset.yaml"
TRAINJOB_FILE = "trainjob.yaml"
CPUS_PER_GPU = 8
MASTER_PORT = 29500
IMAGE = "registry.example.com/train:latest"  # placeholder for the image with the script and torch
SLURM = """#!/bin/bash
# Slurm: {nodes} node{s} with {gpus} GPUs each. Submit it from its own directory (sbatch runs a copy of it).
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.out

# One task per node: torchrun, which starts a rank for each GPU. {cpus} CPUs per task are {cpus_per_gpu} for each
# GPU, and --mem=0 is all memory of the node: put in what your nodes have.
set -eu
{environment}HEAD_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000)) # differs between jobs, as two jobs may share a node

# Since Slurm 22.05 srun does not inherit --cpus-per-task of the job. The job ends when a node does, with its torchrun.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 torchrun --nnodes={nodes} --nproc-per-node={gpus} \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$HEAD_NODE:$PORT" \\
  {target}
"""
PYTORCHJOB_HEAD = f"""\
# PyTorchJob of the Kubeflow Training Operator v1: kubectl apply -f {PYTORCHJOB_FILE}
# Without that operator, {JOBSET_FILE} starts the same job. Put in your image, with the files in it.
# torchrun reads nodes, processes, node rank and master from the PET_* variables that the operator sets.
"""
JOBSET_HEAD = f"""\
# JobSet, a part of Kubernetes SIGs that needs no Kubeflow: kubectl apply -f {JOBSET_FILE}
# With the Kubeflow Training Operator v1 use {PYTORCHJOB_FILE} instead. Put in your image, with the files in it.
# JobSet names the first pod <JobSet>-<job>-0-0 and publishes that name before the pod is ready.
"""
TRAINER_API = "trainer.kubeflow.org/v1alpha1"
TRAINJOB_HEAD = f"""\
# TrainJob of Kubeflow Trainer 2, with its runtime: kubectl apply -f {TRAINJOB_FILE}
# Put in your image, with the files in it.
# torchrun reads nodes, processes, node rank and master from the PET_* variables that the trainer sets.
"""


def slurm_script(machine: Machine, target: list[str]) -> GeneratedFix:
    """``slurm-script``: a task per node, torchrun in it."""
    if not machine.gpu_count:
        return advice_only("the GPUs of a node")
    machine, target = as_multi_node(machine), target or [STAND_IN_SCRIPT]
    return GeneratedFix(
        text=f"{nodes_text(machine)}. Only torchrun starts ranks; Slurm starts one torchrun on each node.",
        commands=[f"sbatch {SLURM_FILE}"],
        files={SLURM_FILE: render_sbatch(machine, target)},
    )


def kubernetes_manifest(machine: Machine, target: list[str]) -> GeneratedFix:
    """``kubernetes-manifest``: a pod per node, for clusters with the Training Operator and without it."""
    if not machine.gpu_count:
        return advice_only("the GPUs of a node")
    machine, target = as_multi_node(machine), target or [STAND_IN_SCRIPT]
    return GeneratedFix(
        text=(
            f"{nodes_text(machine)}. Use {PYTORCHJOB_FILE} if the Kubeflow Training Operator is installed, else "
            f"{JOBSET_FILE}; put in your image."
        ),
        commands=[f"kubectl apply -f {PYTORCHJOB_FILE}", f"kubectl apply -f {JOBSET_FILE}"],
        files={
            PYTORCHJOB_FILE: render_pytorchjob(machine, target, {}),
            JOBSET_FILE: render_jobset(machine, target, {}),
        },
    )


def render_sbatch(machine: Machine, target: list[str], env_file: str = "", max_restarts: int = 0) -> str:
    """Render the script for ``sbatch``. ``target``: the script and its arguments; ``env_file``: sourced first."""
    return SLURM.format(
        environment=f". ./{env_file}\n" if env_file else "",
        name=kubernetes_name(target),
        nodes=machine.nodes,
        s="s" * (machine.nodes > 1),
        gpus=machine.ranks,
        cpus=CPUS_PER_GPU * machine.ranks,
        cpus_per_gpu=CPUS_PER_GPU,
        target=shlex.join([*restart_options(max_restarts), *target]),
    )


class Restarts(NamedTuple):
    """Restarts after a failure, and where the run finds its checkpoints then."""

    times: int
    claim: str  # PersistentVolumeClaim
    path: str  # where it is mounted


def render_pytorchjob(
    machine: Machine, target: list[str], variables: dict[str, str], restarts: Restarts | None = None
) -> str:
    """Render the PyTorchJob. The first node is its Master, the others are Workers."""
    pod = _pod(machine, ["torchrun", *_in_image(target)], variables, restarts)
    replica: dict[str, Any] = {"restartPolicy": "OnFailure" if restarts else "Never", "template": {"spec": pod}}
    replicas = {"Master": {"replicas": 1} | replica}
    if machine.nodes > 1:
        replicas["Worker"] = {"replicas": machine.nodes - 1} | replica
    plain = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": kubernetes_name(target)},
        "spec": {
            "nprocPerNode": str(machine.ranks),
            "runPolicy": {"cleanPodPolicy": "Running"} | ({"backoffLimit": restarts.times} if restarts else {}),
            "pytorchReplicaSpecs": replicas,
        },
    }
    return PYTORCHJOB_HEAD + render_yaml(plain)


def render_jobset(
    machine: Machine, target: list[str], variables: dict[str, str], restarts: Restarts | None = None
) -> str:
    """Render the JobSet: one indexed job with a pod for each node."""
    name = kubernetes_name(target)
    start = ["torchrun", f"--nnodes={machine.nodes}", f"--nproc-per-node={machine.ranks}"]
    if machine.nodes > 1:
        # Kubernetes puts in the index of the pod, which an indexed job has in its environment.
        start += ["--node-rank=$(JOB_COMPLETION_INDEX)", f"--master-addr={name}-nodes-0-0.{name}"]
        start += [f"--master-port={MASTER_PORT}"]
    pod = _pod(machine, [*start, *_in_image(target)], variables, restarts) | {"restartPolicy": "Never"}
    job = {
        "completionMode": "Indexed",
        "completions": machine.nodes,
        "parallelism": machine.nodes,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    plain = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": _restart_all_pods(restarts)
        | {"replicatedJobs": [{"name": "nodes", "replicas": 1, "template": {"spec": job}}]},
    }
    return JOBSET_HEAD + render_yaml(plain)


def render_trainjob(
    machine: Machine, target: list[str], variables: dict[str, str], restarts: Restarts | None = None
) -> str:
    """Render the TrainJob with a TrainingRuntime of its own, whose pods have the volumes."""
    name = kubernetes_name(target)
    pod = _pod(machine, ["torchrun", *_in_image(target)], variables, restarts)
    (container,) = pod["containers"]
    trainer = {"image": container.pop("image"), "command": container.pop("command"), "env": container.pop("env")}
    trainer |= {"numNodes": machine.nodes, "numProcPerNode": machine.ranks}
    trainer["resourcesPerNode"] = container.pop("resources")
    container |= {"name": "node", "image": IMAGE}  # the trainer's settings go to the container of this name
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod | {"restartPolicy": "Never"}}},
    }
    runtime = {
        "apiVersion": TRAINER_API,
        "kind": "TrainingRuntime",
        "metadata": {"name": f"{name}-runtime", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": machine.nodes, "torch": {}},
            "template": {"spec": _restart_all_pods(restarts) | {"replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }
    train_job = {
        "apiVersion": TRAINER_API,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": f"{name}-runtime"}, "trainer": trainer},
    }
    return f"{TRAINJOB_HEAD}{render_yaml(runtime)}---\n{render_yaml(train_job)}"


def kubernetes_name(target: list[str]) -> str:
    """Return a name made from the script's: a letter, then lowercase letters, digits and hyphens, at most 40 characters
    (the names of pods and services are longer and are limited to 63)."""
    plain = re.sub("-+", "-", job_name(target).lower())
    return (plain if plain[0].isalpha() else f"job-{plain}")[:40].rstrip("-")


def _in_image(target: list[str]) -> list[str]:
    """The script by its path in the project: paths relative to the manifest mean nothing in the image."""
    script, *arguments = target
    return ["/".join(part for part in script.split("/") if part not in (".", "..")), *arguments]


def _restart_all_pods(restarts: Restarts | None) -> dict[str, Any]:
    """Return how a JobSet starts all of its pods again after a failure."""
    return {"failurePolicy": {"maxRestarts": restarts.times}} if restarts else {}


def _pod(
    machine: Machine, command: list[str], variables: dict[str, str], restarts: Restarts | None = None
) -> dict[str, Any]:
    shm_gib = max(1, machine.ranks * SHM_PER_RANK_BYTES // GIB)
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}},
    ]
    if restarts:
        mounts.append({"name": "checkpoints", "mountPath": restarts.path})
        volumes.append({"name": "checkpoints", "persistentVolumeClaim": {"claimName": restarts.claim}})
    return {
        "containers": [
            {
                "name": "pytorch",  # the name that the Training Operator expects
                "image": IMAGE,
                "command": command,
                "env": [{"name": name, "value": value} for name, value in variables.items()],
                "resources": {"limits": {"nvidia.com/gpu": machine.ranks}},
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
