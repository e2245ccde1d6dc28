"""Conditions on the rank: one table of answers that review and triage both have to give.

The assumed job has four ranks on two nodes. ``None`` means unknown: the condition depends on the rank and on more.
"""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.model.evaluated import Evaluated
from ddpwizard.app.training_script.model.keys import BY_RANK, RANKS, TOUCHED

IMPORTS = "import os\nimport torch\nimport torch.distributed as dist\nimport horovod.torch as hvd\n"
FIRST = [True, False, False, False]
OTHERS = [False, True, True, True]
LAST = [False, False, False, True]
FIRST_OF_NODE = [True, False, True, False]
FIRST_NODE = [True, True, False, False]
EVERY = [True] * 4
NONE = [False] * 4
UNKNOWN = [None] * 4

TABLE: list[tuple[str, str, list[bool | None] | list[None] | list[bool]]] = [
    # Names of the rank.
    ("", "rank == 0", FIRST),
    ("", "rank != 0", OTHERS),
    ("", "not rank", FIRST),
    ("", "rank", OTHERS),
    ("", "rank in (0,)", FIRST),
    ("", "args.rank in [-1, 0]", FIRST),
    ("", "rank not in {1, 2, 3}", FIRST),
    ("", "0 == rank", FIRST),
    ("", "rank < 1", FIRST),
    ("", "rank is None", NONE),
    ("", "rank == world_size - 1", LAST),
    ("", "rank == args.world_size - 1", LAST),
    ("", "rank == dist.get_world_size() - 1", LAST),
    ("", "rank_id == 0", FIRST),
    ("", "worker_rank == 0", FIRST),
    ("", "self.global_rank == 0", FIRST),
    ("", "process_index == 0", FIRST),
    ("", "accelerator.process_index == 0", FIRST),
    ("", "mpi_rank == 0", FIRST),
    ("", "_rank == 0", FIRST),
    ("", "slurm_procid == 0", FIRST),
    ("", "local_rank == 0", FIRST_OF_NODE),
    ("", "args.local_rank in (-1, 0)", FIRST_OF_NODE),
    ("", "accelerator.local_process_index == 0", FIRST_OF_NODE),
    ("", "node_local_rank == 0", FIRST_OF_NODE),
    ("", "node_rank == 0", FIRST_NODE),
    ("", "rank % 2 == 0", FIRST_OF_NODE),
    ("", "rank % torch.cuda.device_count() == 0", FIRST_OF_NODE),
    ("n = torch.cuda.device_count()", "rank % n == 0", FIRST_OF_NODE),
    ("", "rank // gpus_per_node == 0", FIRST_NODE),
    ("", "rank % n == 0", UNKNOWN),
    # Device meshes that cover all ranks.
    ('mesh = init_device_mesh("cpu", (4,))', "not mesh.get_local_rank()", FIRST),
    ('mesh = init_device_mesh("cpu", (4,))', "mesh.get_rank() == 0", FIRST),
    ('mesh = init_device_mesh("cpu", mesh_shape=(2, 2))', "mesh.get_rank() == 0", FIRST),
    ("", "mesh.get_local_rank() == 0", UNKNOWN),
    # Keys of configurations.
    ("", 'cfg["rank"] == 0', FIRST),
    ("", 'config.get("rank", 0) == 0', FIRST),
    ("", 'getattr(args, "rank", 0) == 0', FIRST),
    ("", 'cfg["local_rank"] == 0', FIRST_OF_NODE),
    # Environment variables, as numbers and as text.
    ("", 'int(os.environ["RANK"]) == 0', FIRST),
    ("", 'os.environ["RANK"] == "0"', FIRST),
    ("", 'os.environ.get("RANK", "0") == "0"', FIRST),
    ("", 'os.getenv("RANK") == "0"', FIRST),
    ("", 'int(os.environ["LOCAL_RANK"]) == 0', FIRST_OF_NODE),
    ("", 'os.environ.get("LOCAL_RANK", "0") == "0"', FIRST_OF_NODE),
    ("", 'int(os.environ["SLURM_PROCID"]) == 0', FIRST),
    ("", 'int(os.environ["SLURM_LOCALID"]) == 0', FIRST_OF_NODE),
    ("", 'int(os.environ["OMPI_COMM_WORLD_RANK"]) == 0', FIRST),
    ("", 'int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]) == 0', FIRST_OF_NODE),
    ("", 'int(os.environ["MV2_COMM_WORLD_RANK"]) == 0', FIRST),
    ("", 'int(os.environ["PMI_RANK"]) == 0', FIRST),
    ("", 'int(os.environ["PMI_LOCAL_RANK"]) == 0', FIRST_OF_NODE),
    ("", 'int(os.environ["MPI_LOCALRANKID"]) == 0', FIRST_OF_NODE),
    ("", 'int(os.environ["GROUP_RANK"]) == 0', FIRST_NODE),
    ("env = os.environ", 'int(env["RANK"]) == 0', FIRST),
    ("", 'int(os.environ["WORLD_SIZE"]) == 4', EVERY),
    # Functions.
    ("", "dist.get_rank() == 0", FIRST),
    ("", "torch.distributed.get_rank() == 0", FIRST),
    ("", "dist.get_node_local_rank() == 0", FIRST_OF_NODE),
    ("", "get_rank() == 0", FIRST),
    ("", "utils.get_global_rank() == 0", FIRST),
    ("", "get_local_rank() == 0", FIRST_OF_NODE),
    ("", "comm.Get_rank() == 0", FIRST),
    ("", "hvd.rank() == 0", FIRST),
    ("", "hvd.local_rank() == 0", FIRST_OF_NODE),
    ("", "xm.get_ordinal() == 0", FIRST),
    ("", "xm.is_master_ordinal()", FIRST_OF_NODE),
    ("", "xm.is_master_ordinal(local=False)", FIRST),
    ("", "dist.get_rank(group) == 0", UNKNOWN),
    ("", "mpu.get_model_parallel_rank() == 0", UNKNOWN),
    ("", "tp_group.rank() == 0", UNKNOWN),
    # First and last processes by name.
    ("", "is_main_process()", FIRST),
    ("", "accelerator.is_main_process", FIRST),
    ("", "accelerator.is_local_main_process", FIRST_OF_NODE),
    ("", "accelerator.is_last_process", LAST),
    ("", "is_last_rank", LAST),
    ("", "trainer.is_global_zero", FIRST),
    ("", "self.args.is_world_process_zero", FIRST),
    ("", "trainer.is_local_process_zero()", FIRST_OF_NODE),
    ("", "is_master", FIRST),
    ("", "not is_master()", OTHERS),
    ("", "is_rank_0", FIRST),
    ("", "rank_zero", FIRST),
    ("", "args.is_leader", FIRST),
    ("", "leader", FIRST),
    ("", "is_coordinator", FIRST),
    ("", "coordinator", FIRST),
    ("", "is_primary()", FIRST),
    ("", "is_master_node", FIRST_NODE),
    # Names that stand for a condition.
    ("main = rank == 0", "main", FIRST),
    ("main = os.environ.get('RANK', '0') == '0'", "not main", OTHERS),
    ("r = dist.get_rank()", "r == 0", FIRST),
    ("MASTER = 0", "rank == MASTER", FIRST),
    ("local_rank = dist.get_rank()", "local_rank == 0", FIRST),
    ("rank = args.local_rank", "rank == 0", FIRST_OF_NODE),
    ("rank = int(rank)", "rank == 0", FIRST),
    ("rank = dist.get_rank() + 1", "rank == 1", FIRST),
    ("rank = dist.get_rank() if dist.is_initialized() else 0", "rank == 0", FIRST),
    # Combined with what every distributed run has.
    ("", "dist.is_initialized() and rank == 0", FIRST),
    ("", "not args.distributed or rank == 0", FIRST),
    ("", "world_size > 1 and rank == 0", FIRST),
    ("", "rank == 0 and step % 10 == 0", [None, False, False, False]),
    # Ranks within other groups: the number does not follow from the name.
    ("", "tp_rank == 0", UNKNOWN),
    ("", "group_rank == 0", UNKNOWN),
    ("", "rank == offset", UNKNOWN),
]
INDEPENDENT = [
    ("", "step == 0"),
    ("", "args.world_size > 1"),
    ("", "lora_rank == 8"),
    ("", "config.lora_rank > 0"),
    ("", "src_rank == 0"),
    ("", "is_distributed"),
    ("", "main()"),
    ("", "coordinator()"),
    ("", "args.main"),
    ("", "is_first_batch"),
    ("", "rerank(documents)"),
    ("rank = torch.linalg.det(x) > 0", "rank"),
    ("rank = int(torch.linalg.matrix_rank(x))", "rank == 0"),
    ("rank = torch.linalg.matrix_rank(x).item()", "rank == 0"),
]


def parse(setting: str, test: str) -> tuple[str, ast.Module, ast.expr]:
    """Return a script with the condition: its text, its tree and the condition."""
    text = f"{IMPORTS}def main(loader):\n    {setting or 'pass'}\n    if {test}:\n        pass\n"
    tree = ast.parse(text)
    function = tree.body[-1]
    assert isinstance(function, ast.FunctionDef)
    branch = function.body[-1]
    assert isinstance(branch, ast.If)
    return text, tree, branch.test


@pytest.mark.parametrize(("setting", "test", "expected"), TABLE)
def test_conditions_that_depend_on_the_rank(setting: str, test: str, expected: list[bool | None]) -> None:
    text, tree, expr = parse(setting, test)
    evaluated = Evaluated(tree, Path("t.py"), text)
    value = evaluated.value(expr)
    assert value
    seen = [evaluated.keys.specialise(value, rank) for rank in RANKS]
    assert [bool(each.value) if each.is_constant else None for each in seen] == expected
    assert bool(value.differs_by & BY_RANK) is (expected not in (EVERY, NONE))


@pytest.mark.parametrize(("setting", "test"), INDEPENDENT)
def test_conditions_that_do_not_depend_on_the_rank(setting: str, test: str) -> None:
    text, tree, expr = parse(setting, test)
    value = Evaluated(tree, Path("t.py"), text).value(expr)
    assert value is None or not value.differs_by & (BY_RANK | TOUCHED)
