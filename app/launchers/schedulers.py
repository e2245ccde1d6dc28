"""Jobs for schedulers: a Slurm script, and manifests for Kubernetes.

Two manifests, as clusters differ in what is installed: PyTorchJob (``kubeflow.org/v1``, Training Operator 1.9) and
JobSet (``jobset.x-k8s.io/v1alpha2``, 0.9), which needs no Kubeflow. Both start torchrun with a rank for each node,
not c10d: there the first node must know itself by its name, which it may not yet while its pod starts.
Slurm's options: slurm.schedmd.com/sbatch.html (25.05).
"""

import re
import shlex
from typing import Any

import yaml

from ..hardware.machine import GeneratedFix, Machine
from .torchrun import GIB, SHM_PER_RANK_BYTES, STAND_IN_SCRIPT, advice_only, as_multi_node, job_name, nodes_text

SLURM_FILE, PYTORCHJOB_FILE, JOBSET_FILE = "job.slurm", "pytorchjob.yaml", "jobset.yaml"
CPUS_PER_GPU = 8
MASTER_PORT = 29500
IMAGE = "registry.example.com/train:latest"  # stands for the image with the script and torch
SLURM = """#!/bin/bash
# Slurm: {nodes} node{s} with {gpus} GPUs each. Submit it from the directory it lies in (sbatch runs a copy of it).
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem=0
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.out

# One task per node, which is torchrun; it starts a rank for each GPU. {cpus} CPUs per task are {cpus_per_gpu} for each
# GPU, and --mem=0 is all memory of the node: put what your nodes have.
set -eu
{environment}HEAD_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000)) # another one for each job, as two jobs may share a node

# Since Slurm 22.05 srun does not take over the CPUs of the job by itself.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" torchrun --nnodes={nodes} --nproc-per-node={gpus} \\
  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$HEAD_NODE:$PORT" \\
  {target}
"""
PYTORCHJOB_HEAD = f"""\
# PyTorchJob of the Kubeflow Training Operator v1: kubectl apply -f {PYTORCHJOB_FILE}
# Where that operator is not installed, {JOBSET_FILE} starts the same job. Put in your image, with the files in it.
# torchrun reads nodes, processes, node rank and master from the PET_* variables that the operator sets.
"""
JOBSET_HEAD = f"""\
# JobSet, a part of Kubernetes SIGs that needs no Kubeflow: kubectl apply -f {JOBSET_FILE}
# With the Kubeflow Training Operator v1 take {PYTORCHJOB_FILE} instead. Put in your image, with the files in it.
# JobSet names the first pod <JobSet>-<job>-0-0 and makes it known under that name before it is ready.
"""


def slurm_script(box: Machine, target: list[str]) -> GeneratedFix:
    """``slurm-script``: a task per node, torchrun in it."""
    if not box.gpu_count:
        return advice_only("the GPUs of a node")
    box, target = as_multi_node(box), target or [STAND_IN_SCRIPT]
    return GeneratedFix(
        text=f"{nodes_text(box)}. Only torchrun starts ranks; Slurm starts one torchrun on each node.",
        commands=[f"sbatch {SLURM_FILE}"],
        files={SLURM_FILE: render_sbatch(box, target)},
    )


def kubernetes_manifest(box: Machine, target: list[str]) -> GeneratedFix:
    """``kubernetes-manifest``: a pod per node, for clusters with the Training Operator and without it."""
    if not box.gpu_count:
        return advice_only("the GPUs of a node")
    box, target = as_multi_node(box), target or [STAND_IN_SCRIPT]
    return GeneratedFix(
        text=(
            f"{nodes_text(box)}. Take {PYTORCHJOB_FILE} where the Kubeflow Training Operator is installed, else "
            f"{JOBSET_FILE}; put in your image."
        ),
        commands=[f"kubectl apply -f {PYTORCHJOB_FILE}", f"kubectl apply -f {JOBSET_FILE}"],
        files={PYTORCHJOB_FILE: render_pytorchjob(box, target, {}), JOBSET_FILE: render_jobset(box, target, {})},
    )


def render_sbatch(box: Machine, target: list[str], env_file: str = "") -> str:
    """The script for ``sbatch``. ``target``: the script and its arguments; ``env_file``: read before they start."""
    return SLURM.format(
        environment=f". ./{env_file}\n" if env_file else "",
        name=kubernetes_name(target),
        nodes=box.nodes,
        s="s" * (box.nodes > 1),
        gpus=box.ranks,
        cpus=CPUS_PER_GPU * box.ranks,
        cpus_per_gpu=CPUS_PER_GPU,
        target=shlex.join(target),
    )


def render_pytorchjob(box: Machine, target: list[str], variables: dict[str, str]) -> str:
    """The PyTorchJob: the first node is its Master, the others are Workers."""
    pod = _pod(box, ["torchrun", *_in_image(target)], variables)
    replicas: dict[str, Any] = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}}
    if box.nodes > 1:
        replicas["Worker"] = {"replicas": box.nodes - 1, "restartPolicy": "Never", "template": {"spec": pod}}
    plain = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": kubernetes_name(target)},
        "spec": {
            "nprocPerNode": str(box.ranks),
            "runPolicy": {"cleanPodPolicy": "Running"},
            "pytorchReplicaSpecs": replicas,
        },
    }
    return PYTORCHJOB_HEAD + _text(plain)


def render_jobset(box: Machine, target: list[str], variables: dict[str, str]) -> str:
    """The JobSet: one indexed job with a pod for each node."""
    name = kubernetes_name(target)
    start = ["torchrun", f"--nnodes={box.nodes}", f"--nproc-per-node={box.ranks}"]
    if box.nodes > 1:
        # Kubernetes puts in the index of the pod, which an indexed job has in its environment.
        start += ["--node-rank=$(JOB_COMPLETION_INDEX)", f"--master-addr={name}-nodes-0-0.{name}"]
        start += [f"--master-port={MASTER_PORT}"]
    pod = _pod(box, [*start, *_in_image(target)], variables) | {"restartPolicy": "Never"}
    job = {
        "completionMode": "Indexed",
        "completions": box.nodes,
        "parallelism": box.nodes,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    plain = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "nodes", "replicas": 1, "template": {"spec": job}}]},
    }
    return JOBSET_HEAD + _text(plain)


def kubernetes_name(target: list[str]) -> str:
    """A name from the script's: small letters, digits and hyphens, a letter first, at most 40 characters (the names of
    pods and services are longer and end at 63)."""
    plain = re.sub("-+", "-", job_name(target).lower())
    return (plain if plain[0].isalpha() else f"job-{plain}")[:40].rstrip("-")


def _in_image(target: list[str]) -> list[str]:
    """The script by its path in the project: where the manifest lies beside it says nothing of the image."""
    script, *arguments = target
    return ["/".join(part for part in script.split("/") if part not in (".", "..")), *arguments]


def _pod(box: Machine, command: list[str], variables: dict[str, str]) -> dict[str, Any]:
    shm_gib = max(1, box.ranks * SHM_PER_RANK_BYTES // GIB)
    return {
        "containers": [
            {
                "name": "pytorch",  # the name that the Training Operator looks for
                "image": IMAGE,
                "command": command,
                "env": [{"name": name, "value": value} for name, value in variables.items()],
                "resources": {"limits": {"nvidia.com/gpu": box.ranks}},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }
        ],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}}],
    }


class _Plain(yaml.SafeDumper):
    """Writes a part that stands twice both times, without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(plain: dict[str, Any]) -> str:
    return yaml.dump(plain, Dumper=_Plain, sort_keys=False, width=120)
