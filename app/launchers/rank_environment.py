"""Which rank a process was started as, from its initial environment."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class RankAssignment(NamedTuple):
    """A rank of a run. ``certain``: told by RANK itself, which torch reads, not by an MPI or Slurm around it."""

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None
    run: str  # tells apart runs that share a master
    master: str
    certain: bool


class _Names(NamedTuple):
    rank: str
    world_size: Sequence[str]
    local_rank: str
    local_world_size: str
    run: Sequence[str]


TORCH = _Names("RANK", ["WORLD_SIZE"], "LOCAL_RANK", "LOCAL_WORLD_SIZE", ["TORCHELASTIC_RUN_ID"])
# Open MPI: mpirun(1), "Exported environment variables", and PMIx. MPICH and Intel MPI: their process managers' PMI.
# Slurm: srun(1), "Output environment variables".
OTHERS = (
    _Names(
        "OMPI_COMM_WORLD_RANK",
        ["OMPI_COMM_WORLD_SIZE"],
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    ),
    _Names(
        "MV2_COMM_WORLD_RANK",
        ["MV2_COMM_WORLD_SIZE"],
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
        [],
    ),
    _Names("PMI_RANK", ["PMI_SIZE"], "MPI_LOCALRANKID", "MPI_LOCALNRANKS", []),
    _Names(
        "SLURM_PROCID",
        ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        "SLURM_LOCALID",
        "",
        ["SLURM_JOB_ID", "SLURM_STEP_ID"],
    ),
)


def rank_from_environment(environ: Mapping[str, str]) -> RankAssignment | None:
    """The rank this environment makes a process, or None."""
    for names in (TORCH, *OTHERS):
        if names.rank not in environ:
            continue
        rank = integer_variable(environ, names.rank)
        world_size = next((n for name in names.world_size if (n := integer_variable(environ, name))), None)
        if rank is not None and world_size and rank < world_size:
            return RankAssignment(
                rank=rank,
                world_size=world_size,
                local_rank=integer_variable(environ, names.local_rank),
                local_world_size=integer_variable(environ, names.local_world_size),
                run=".".join(environ[name] for name in names.run if name in environ),
                master=rendezvous_address(environ),
                certain=names is TORCH,
            )
    return None


def rendezvous_address(environ: Mapping[str, str]) -> str:
    """``address:port`` of the meeting point, or empty text."""
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    return f"{address}:{port}" if address or port else ""


def integer_variable(environ: Mapping[str, str], name: str) -> int | None:
    """A variable that holds a whole number, or None."""
    value = environ.get(name, "").strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else None
