"""Variables that launchers set for a rank: one table, read as the launchers' own documentation writes them."""

import ast
import importlib.util
from pathlib import Path

import pytest
from ddpwizard.app.launchers.known_variables import is_launch_variable
from ddpwizard.app.launchers.rank_variables import (
    ALL_RANK_VARIABLES,
    CONTRACT,
    LAUNCH_VARIABLES,
    LOCAL_RANK_OF,
    RANK_SCOPES,
    local_world_size,
    rank_from_environment,
    without_launch_variables,
)


def package_source(package: str, path: str) -> str:
    """Source of a file of an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        pytest.skip(f"{package} is not installed")
    return (Path(found.origin).parent / path).read_text()


class TestRankFromEnvironment:
    """The rank of a process, from the variables it was started with."""

    @pytest.mark.parametrize(
        ("environ", "rank", "local_rank", "local_world"),
        [
            ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, 3, 1, 2),  # torchrun
            ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}, 3, 1, 2),  # deepspeed
            (
                {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
                3,
                1,
                None,
            ),
            (
                {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_SIZE": "4"},
                3,
                None,
                4,
            ),
            ({"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, 3, 1, 2),
            ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "1"}, 3, None, None),
        ],
    )
    def test_each_launcher(
        self, environ: dict[str, str], rank: int, local_rank: int | None, local_world: int | None
    ) -> None:
        found = rank_from_environment(environ)
        assert found
        assert (found.rank, found.world_size, found.local_rank) == (rank, 8, local_rank)
        assert found.local_world_size == local_world

    def test_torch_comes_before_the_slurm_job_around_it(self) -> None:
        found = rank_from_environment({"RANK": "3", "WORLD_SIZE": "4", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"})
        assert found
        assert (found.rank, found.world_size, found.certain) == (3, 4, True)

    def test_slurm_without_torch_variables(self) -> None:
        environ = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "70"}
        found = rank_from_environment(environ)
        assert found
        assert (found.rank, found.local_rank, found.run, found.certain) == (5, 1, "70", False)

    @pytest.mark.parametrize(
        "environ",
        [
            {},
            {"RANK": "4", "WORLD_SIZE": "4"},
            {"RANK": "0"},
            {"RANK": "-1", "WORLD_SIZE": "2"},
            {"RANK": "²", "WORLD_SIZE": "4"},
        ],
    )
    def test_invalid_environment_has_no_rank(self, environ: dict[str, str]) -> None:
        assert rank_from_environment(environ) is None

    def test_local_world_size_that_is_no_number_is_none(self) -> None:
        assert local_world_size({"LOCAL_WORLD_SIZE": "two"}) is None


class TestTable:
    """One table serves discovery, the review of scripts, doctor and the relaunch of a job."""

    def test_every_rank_variable_has_a_local_one(self) -> None:
        assert LOCAL_RANK_OF["SLURM_PROCID"] == "SLURM_LOCALID"
        assert all(RANK_SCOPES[name] == "global" for name in LOCAL_RANK_OF)
        assert all(RANK_SCOPES[name] == "local" for name in LOCAL_RANK_OF.values())

    def test_every_name_is_shown_as_a_launch_variable(self) -> None:
        names = {name for each in ALL_RANK_VARIABLES for name in (each.rank, each.local_rank, *each.local_world_size)}
        assert {name for name in names if not is_launch_variable(name)} == set()

    def test_torchrun_sets_no_other_variables(self) -> None:
        source = package_source("torch", "distributed/elastic/agent/server/local_elastic_agent.py")
        tables = [
            node.value
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "worker_env"
        ]
        names = {
            key.value for table in tables if isinstance(table, ast.Dict) for key in table.keys
            if isinstance(key, ast.Constant)
        }  # fmt: skip
        assert {"RANK", "GROUP_WORLD_SIZE", "TORCHELASTIC_RUN_ID"} <= names
        assert names - {*LAUNCH_VARIABLES} == {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}  # kept: its default since torch 2.2


class TestWithoutLaunchVariables:
    """The environment for another job, started from inside of one."""

    def test_launch_variables_and_torchrun_options_are_removed(self) -> None:
        environ = dict.fromkeys([*LAUNCH_VARIABLES, "PET_NNODES", "PET_RDZV_ENDPOINT"], "1")
        assert without_launch_variables({**environ, "PATH": "/bin"}) == {"PATH": "/bin"}

    @pytest.mark.parametrize("name", ["LOCAL_CACHE", "ROLE_ARN", "GROUP_NAME", "RANKING", "TORCHELASTIC_LOG_LEVEL"])
    def test_variables_of_the_user_stay(self, name: str) -> None:
        assert without_launch_variables({name: "1"}) == {name: "1"}

    def test_contract_is_removed(self) -> None:
        assert set(CONTRACT) <= set(LAUNCH_VARIABLES)
