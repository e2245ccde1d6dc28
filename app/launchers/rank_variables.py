"""Environment variables that launchers set for each rank, and the rank that an environment describes."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ..text.numbers import MOST_RANKS, parse_count

RankScope = Literal["global", "local", "node"]


class RankVariables(NamedTuple):
    """Variables that one launcher sets for each rank. Where there are several names, the first that is set counts."""

    rank: str
    world_size: Sequence[str]
    local_rank: str
    local_world_size: Sequence[str] = ()
    node_rank: Sequence[str] = ()
    run_id: Sequence[str] = ()


class RankAssignment(NamedTuple):
    """A rank of a run. ``certain``: from RANK, which torch reads, not from the MPI or Slurm job around it."""

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None
    run: str  # distinguishes runs that share a master
    master: str
    certain: bool


# Read by torch's env:// rendezvous, in the order in which it reports a missing one.
CONTRACT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

# torchrun (torch.distributed.elastic, local_elastic_agent.py) and accelerate launch, which calls it. DeepSpeed's
# launcher (launcher/launch.py) sets the contract, LOCAL_RANK, LOCAL_SIZE and CROSS_*. Lightning reads NODE_RANK.
TORCH = RankVariables(
    rank="RANK",
    world_size=("WORLD_SIZE",),
    local_rank="LOCAL_RANK",
    local_world_size=("LOCAL_WORLD_SIZE", "LOCAL_SIZE"),
    node_rank=("GROUP_RANK", "NODE_RANK", "CROSS_RANK"),
    run_id=("TORCHELASTIC_RUN_ID",),
)
# mpirun(1), "Exported environment variables", and PMIx. OMPI_COMM_WORLD_NODE_RANK is a rank within the node, not of it.
OPEN_MPI = RankVariables(
    rank="OMPI_COMM_WORLD_RANK",
    world_size=("OMPI_COMM_WORLD_SIZE",),
    local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
    local_world_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
    run_id=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
)
MVAPICH = RankVariables(
    rank="MV2_COMM_WORLD_RANK",
    world_size=("MV2_COMM_WORLD_SIZE",),
    local_rank="MV2_COMM_WORLD_LOCAL_RANK",
    local_world_size=("MV2_COMM_WORLD_LOCAL_SIZE",),
)
# Process manager of MPICH and Intel MPI.
HYDRA = RankVariables(
    rank="PMI_RANK",
    world_size=("PMI_SIZE",),
    local_rank="MPI_LOCALRANKID",
    local_world_size=("MPI_LOCALNRANKS",),
)
# srun(1), "Output environment variables".
SLURM = RankVariables(
    rank="SLURM_PROCID",
    world_size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
    local_rank="SLURM_LOCALID",
    node_rank=("SLURM_NODEID",),
    run_id=("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
# Most specific first: a job of torchrun inside a Slurm job has the variables of both.
ALL_RANK_VARIABLES = (TORCH, OPEN_MPI, MVAPICH, HYDRA, SLURM)

RANK_SCOPES: dict[str, RankScope] = {
    **{each.rank: "global" for each in ALL_RANK_VARIABLES},
    **{each.local_rank: "local" for each in ALL_RANK_VARIABLES},
    **{name: "node" for each in ALL_RANK_VARIABLES for name in each.node_rank},
}
WORLD_SIZES = frozenset(name for each in ALL_RANK_VARIABLES for name in each.world_size)
LOCAL_WORLD_SIZES = frozenset(name for each in ALL_RANK_VARIABLES for name in each.local_world_size)
LOCAL_RANK_OF = {each.rank: each.local_rank for each in ALL_RANK_VARIABLES}

# Everything that torchrun, accelerate launch and DeepSpeed set for one rank only or for one run only. Left over in a
# shell, they mislead the next start. LOCAL_CACHE, ROLE_ARN and other names of the user's own are not among them.
LAUNCH_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"),
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"),
)
TORCHRUN_OPTION_PREFIX = "PET_"  # PET_NNODES sets --nnodes


def rank_from_environment(environ: Mapping[str, str]) -> RankAssignment | None:
    """Return the rank that ``environ`` assigns to a process, or None."""
    for names in ALL_RANK_VARIABLES:
        if names.rank not in environ:
            continue
        rank = integer_variable(environ, names.rank)
        world_size = _first_number(environ, names.world_size)
        if rank is not None and world_size and rank < world_size <= MOST_RANKS:
            on_node = _first_number(environ, names.local_world_size)
            return RankAssignment(
                rank=rank,
                world_size=world_size,
                local_rank=integer_variable(environ, names.local_rank),
                local_world_size=on_node if on_node and on_node <= world_size else None,
                run=".".join(environ[name] for name in names.run_id if name in environ),
                master=rendezvous_address(environ),
                certain=names is TORCH,
            )
    return None


def local_world_size(environ: Mapping[str, str]) -> int | None:
    """Return the ranks of this node by the variables of torchrun or DeepSpeed, or None."""
    return _first_number(environ, TORCH.local_world_size)


def rendezvous_address(environ: Mapping[str, str]) -> str:
    """Return ``address:port`` of the rendezvous, or an empty string."""
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    return f"{address}:{port}" if address or port else ""


def integer_variable(environ: Mapping[str, str], name: str) -> int | None:
    """Return the value of a variable that holds a whole number, or None."""
    return parse_count(environ.get(name))


def without_launch_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` without what a launcher set: the environment to start another job from.

    Options of torchrun given as variables (``PET_NNODES``) are left out too: they would change the other job.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in LAUNCH_VARIABLES and not name.startswith(TORCHRUN_OPTION_PREFIX)
    }


def _first_number(environ: Mapping[str, str], names: Sequence[str]) -> int | None:
    found = (integer_variable(environ, name) for name in names)
    return next((number for number in found if number), None)
