"""The fields of PyTorchJob, JobSet and TrainJob that manifests may have, as strict types: an unknown one is refused.

Names, types and what is required are those of the published definitions: kubeflow.org_pytorchjobs.yaml of Training
Operator 1.9.0, jobset.x-k8s.io_jobsets.yaml of JobSet 0.9, trainer.kubeflow.org_trainjobs.yaml and
trainer.kubeflow.org_trainingruntimes.yaml of Trainer 2; the generated manifests were also held against those
themselves. Enumerations: the operator's API docs.
"""

from typing import Annotated, Literal

import msgspec
import yaml

Name = Annotated[str, msgspec.Meta(pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Fields as in YAML, no other."""


class Metadata(Strict):
    name: Name
    namespace: Name = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Labels(Strict):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Variable(Strict):
    name: str
    value: str


class Resources(Strict):
    limits: dict[str, int | str] = {}
    requests: dict[str, int | str] = {}


class Mount(Strict):
    name: Name
    mount_path: str
    read_only: bool = False


class EmptyDir(Strict):
    medium: Literal["", "Memory"] = ""
    size_limit: str | int = ""


class Claim(Strict):
    claim_name: Name
    read_only: bool = False


class Volume(Strict):
    name: Name
    empty_dir: EmptyDir | None = None
    persistent_volume_claim: Claim | None = None


class Container(Strict):
    name: Name
    image: str
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    resources: Resources = msgspec.field(default_factory=Resources)
    volume_mounts: list[Mount] = []
    working_dir: str = ""


class Pod(Strict):
    containers: Annotated[list[Container], msgspec.Meta(min_length=1)]
    volumes: list[Volume] = []
    restart_policy: Literal["Never", "OnFailure", "Always"] = "Always"


class Template(Strict):
    spec: Pod
    metadata: Metadata | None = None


class Replica(Strict):
    template: Template
    replicas: Count = 1
    restart_policy: Literal["Always", "OnFailure", "Never", "ExitCode"] = "Never"


class RunPolicy(Strict):
    clean_pod_policy: Literal["None", "Running", "All"] = "None"
    backoff_limit: Count | None = None
    ttl_seconds_after_finished: Count | None = None
    active_deadline_seconds: Count | None = None
    suspend: bool = False


class PyTorchJobSpec(Strict):
    pytorch_replica_specs: dict[Literal["Master", "Worker"], Replica]
    nproc_per_node: str = "auto"
    run_policy: RunPolicy = msgspec.field(default_factory=RunPolicy)


class PyTorchJob(Strict):
    api_version: Literal["kubeflow.org/v1"]
    kind: Literal["PyTorchJob"]
    metadata: Metadata
    spec: PyTorchJobSpec


class Job(Strict):
    template: Template
    completions: Count = 1
    parallelism: Count = 1
    completion_mode: Literal["Indexed", "NonIndexed"] = "NonIndexed"
    backoff_limit: Count = 6


class JobTemplate(Strict):
    spec: Job
    metadata: Labels | None = None


class ReplicatedJob(Strict):
    name: Name
    template: JobTemplate
    replicas: Count = 1


class FailurePolicy(Strict):
    max_restarts: Count = 0
    restart_strategy: Literal["Recreate", "BlockingRecreate", "InPlaceRestart"] = "Recreate"


class JobSetSpec(Strict):
    replicated_jobs: list[ReplicatedJob]
    failure_policy: FailurePolicy | None = None


class JobSet(Strict):
    api_version: Literal["jobset.x-k8s.io/v1alpha2"]
    kind: Literal["JobSet"]
    metadata: Metadata
    spec: JobSetSpec


class TorchPolicy(Strict):
    pass


class MlPolicy(Strict):
    num_nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    torch: TorchPolicy | None = None


class JobSetTemplate(Strict):
    spec: JobSetSpec
    metadata: Labels | None = None


class RuntimeSpec(Strict):
    template: JobSetTemplate
    ml_policy: MlPolicy | None = None


class TrainingRuntime(Strict):
    api_version: Literal["trainer.kubeflow.org/v1alpha1"]
    kind: Literal["TrainingRuntime", "ClusterTrainingRuntime"]
    metadata: Metadata
    spec: RuntimeSpec


class RuntimeRef(Strict):
    name: Name
    kind: Literal["TrainingRuntime", "ClusterTrainingRuntime"] = "ClusterTrainingRuntime"
    api_group: Literal["trainer.kubeflow.org"] = "trainer.kubeflow.org"


class Trainer(Strict):
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    num_nodes: Annotated[int, msgspec.Meta(ge=1)] = 1
    num_proc_per_node: Annotated[int, msgspec.Meta(ge=1)] = 1
    resources_per_node: Resources = msgspec.field(default_factory=Resources)


class TrainJobSpec(Strict):
    runtime_ref: RuntimeRef
    trainer: Trainer | None = None
    suspend: bool = False


class TrainJob(Strict):
    api_version: Literal["trainer.kubeflow.org/v1alpha1"]
    kind: Literal["TrainJob"]
    metadata: Metadata
    spec: TrainJobSpec


def pytorchjob(text: str) -> PyTorchJob:
    """The manifest, refused where the definition would refuse it."""
    return msgspec.convert(yaml.safe_load(text), PyTorchJob)


def jobset(text: str) -> JobSet:
    return msgspec.convert(yaml.safe_load(text), JobSet)


def trainjob(text: str) -> tuple[TrainingRuntime, TrainJob]:
    runtime, job = yaml.safe_load_all(text)
    return msgspec.convert(runtime, TrainingRuntime), msgspec.convert(job, TrainJob)
