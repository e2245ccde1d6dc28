"""Jobs for schedulers: a Slurm script, and manifests for Kubernetes.

Two manifests, because clusters differ in what is installed: PyTorchJob (``kubeflow.org/v1``, Training Operator 1.9) and
JobSet (``jobset.x-k8s.io/v1alpha2``, 0.9), which needs no Kubeflow. Both start torchrun with --node-rank,
not c10d: with c10d the first node must resolve its own name, which may not work yet while its pod starts.
Slurm's options: slurm.schedmd.com/sbatch.html (25.05).
"""

import re
import shlex
from typing import Any

from ..hardware.machine import Machine
from ..text.yaml_output import render_yaml
from .torchrun import GIB, SHM_PER_RANK_BYTES, STAND_IN_SCRIPT, advice_only, as_multi_node, job_name, nodes_text
from .types import GeneratedFix

SLURM_FILE, PYTORCHJOB_FILE, JOBSET_FILE = "job.slurm", "pytorchjob.yaml", "jobset.yaml"
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

# Since Slurm 22.05 srun does not inherit --cpus-per-task of the job.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" torchrun --nnodes={nodes} --nproc-per-node={gpus} \\
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


def render_sbatch(machine: Machine, target: list[str], env_file: str = "") -> str:
    """Render the script for ``sbatch``. ``target``: the script and its arguments; ``env_file``: sourced first."""
    return SLURM.format(
        environment=f". ./{env_file}\n" if env_file else "",
        name=kubernetes_name(target),
        nodes=machine.nodes,
        s="s" * (machine.nodes > 1),
        gpus=machine.ranks,
        cpus=CPUS_PER_GPU * machine.ranks,
        cpus_per_gpu=CPUS_PER_GPU,
        target=shlex.join(target),
    )


def render_pytorchjob(machine: Machine, target: list[str], variables: dict[str, str]) -> str:
    """Render the PyTorchJob. The first node is its Master, the others are Workers."""
    pod = _pod(machine, ["torchrun", *_in_image(target)], variables)
    replicas: dict[str, Any] = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}}
    if machine.nodes > 1:
        replicas["Worker"] = {"replicas": machine.nodes - 1, "restartPolicy": "Never", "template": {"spec": pod}}
    plain = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": kubernetes_name(target)},
        "spec": {
            "nprocPerNode": str(machine.ranks),
            "runPolicy": {"cleanPodPolicy": "Running"},
            "pytorchReplicaSpecs": replicas,
        },
    }
    return PYTORCHJOB_HEAD + render_yaml(plain)


def render_jobset(machine: Machine, target: list[str], variables: dict[str, str]) -> str:
    """Render the JobSet: one indexed job with a pod for each node."""
    name = kubernetes_name(target)
    start = ["torchrun", f"--nnodes={machine.nodes}", f"--nproc-per-node={machine.ranks}"]
    if machine.nodes > 1:
        # Kubernetes puts in the index of the pod, which an indexed job has in its environment.
        start += ["--node-rank=$(JOB_COMPLETION_INDEX)", f"--master-addr={name}-nodes-0-0.{name}"]
        start += [f"--master-port={MASTER_PORT}"]
    pod = _pod(machine, [*start, *_in_image(target)], variables) | {"restartPolicy": "Never"}
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
        "spec": {"replicatedJobs": [{"name": "nodes", "replicas": 1, "template": {"spec": job}}]},
    }
    return JOBSET_HEAD + render_yaml(plain)


def kubernetes_name(target: list[str]) -> str:
    """Return a name made from the script's: a letter, then lowercase letters, digits and hyphens, at most 40 characters
    (the names of pods and services are longer and are limited to 63)."""
    plain = re.sub("-+", "-", job_name(target).lower())
    return (plain if plain[0].isalpha() else f"job-{plain}")[:40].rstrip("-")


def _in_image(target: list[str]) -> list[str]:
    """The script by its path in the project: paths relative to the manifest mean nothing in the image."""
    script, *arguments = target
    return ["/".join(part for part in script.split("/") if part not in (".", "..")), *arguments]


def _pod(machine: Machine, command: list[str], variables: dict[str, str]) -> dict[str, Any]:
    shm_gib = max(1, machine.ranks * SHM_PER_RANK_BYTES // GIB)
    return {
        "containers": [
            {
                "name": "pytorch",  # the name that the Training Operator expects
                "image": IMAGE,
                "command": command,
                "env": [{"name": name, "value": value} for name, value in variables.items()],
                "resources": {"limits": {"nvidia.com/gpu": machine.ranks}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}}],
    }
