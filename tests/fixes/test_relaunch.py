"""A job's command line and files, prepared for a second start on a copy."""

import sys
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.relaunch import Relaunch, move_to_copy, plan_relaunch
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.jobs.types import Job, Process


def job(directory: Path, launcher: list[str], rank: list[str], name: str = "torchrun", **environ: str) -> Job:
    process = Process(
        pid=1,
        rank=0,
        local_rank=0,
        command=rank,
        cwd=str(directory),
        python=sys.executable,
        environ={"LOCAL_WORLD_SIZE": "2", "PATH": "/bin", **environ},
    )
    return Job(
        launcher=name,
        launcher_pid=2 if launcher else None,
        launcher_command=launcher,
        launcher_cwd=str(directory) if launcher else "",
        world_size=2,
        master="localhost:29500",
        host="box",
        processes=[process],
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    (directory / "parts").mkdir(parents=True)
    (directory / "train.py").write_text("old\n")
    (directory / "parts" / "model.py").write_text("model\n")
    (directory / ".git").mkdir()
    (directory / ".git" / "config").write_text("x")
    return directory


def fix(path: Path, before: str = "old\n", after: str = "new\n") -> Fix:
    patch = FilePatch(path=str(path), before=before, after=after)
    return Fix(id="f", cause="c", title="t", safety="unsafe", patches=[patch])


def prepare_relaunch(job: Job, fix: Fix, copy: Path) -> Relaunch:
    return move_to_copy(plan_relaunch(job, fix), copy)


RUN = ["python", "-m", "torch.distributed.run"]
RANK = ["python", "-u", "train.py", "--lr", "1"]


@pytest.mark.parametrize(
    "options",
    [
        ["--standalone", "--nproc-per-node=2"],
        ["--nproc-per-node=2", "--master_port", "29500", "--master-addr=localhost"],
        ["--rdzv-backend=c10d", "--rdzv-endpoint", "localhost:29400", "--nproc-per-node=2", "--nnodes=1"],
    ],
)
def test_torchrun_gets_another_rendezvous(place: Path, tmp_path: Path, options: list[str]) -> None:
    relaunch = prepare_relaunch(
        job(place, [*RUN, *options, "train.py", "--lr", "1"], RANK), fix(place / "train.py"), tmp_path / "copy"
    )
    assert relaunch.command == [*RUN, "--standalone", "--nproc-per-node=2", "train.py", "--lr", "1"]


def test_other_launcher_options_are_kept(place: Path, tmp_path: Path) -> None:
    launcher = ["python", "/v/bin/torchrun", "--max-restarts", "3", "--nproc_per_node", "2", "train.py", "--lr", "1"]
    relaunch = prepare_relaunch(job(place, launcher, RANK), fix(place / "train.py"), tmp_path / "copy")
    assert relaunch.command[2:7] == ["--standalone", "--max-restarts", "3", "--nproc_per_node", "2"]


def test_accelerate_gets_a_free_port(place: Path, tmp_path: Path) -> None:
    launcher = [
        "python",
        "/v/bin/accelerate",
        "launch",
        "--main_process_port",
        "29500",
        "--cpu",
        "train.py",
        "--lr",
        "1",
    ]
    relaunch = prepare_relaunch(job(place, launcher, RANK, "accelerate"), fix(place / "train.py"), tmp_path / "copy")
    assert relaunch.command[:3] == launcher[:3]
    assert relaunch.command[3].startswith("--main_process_port=")
    assert relaunch.command[3] != "--main_process_port=29500"
    assert relaunch.command[4:] == ["--cpu", "train.py", "--lr", "1"]


def test_unknown_launcher_is_replaced_by_torchrun(place: Path, tmp_path: Path) -> None:
    relaunch = prepare_relaunch(job(place, [], RANK, "python"), fix(place / "train.py"), tmp_path / "copy")
    assert relaunch.command[:5] == [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert relaunch.command[5:] == ["train.py", "--lr", "1"]


def test_absolute_paths_point_into_the_copy_and_the_original_is_untouched(place: Path, tmp_path: Path) -> None:
    script = str(place / "train.py")
    launcher = [*RUN, "--nproc-per-node=2", script]
    copy = tmp_path / "copy"
    relaunch = prepare_relaunch(
        job(place, launcher, ["python", "-u", script], PYTHONPATH=f"{place}:/lib"), fix(place / "train.py"), copy
    )
    assert relaunch.command[-1] == str(copy / "train.py")
    assert (copy / "train.py").read_text() == "new\n"
    assert (copy / "parts" / "model.py").exists()
    assert not (copy / ".git").exists()
    assert (place / "train.py").read_text() == "old\n"
    assert relaunch.environ == {"PATH": "/bin", "PYTHONPATH": f"{copy}:/lib"}


def test_script_outside_of_the_working_directory_is_copied(place: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "home"
    elsewhere.mkdir()
    launcher = [*RUN, "--nproc-per-node=2", "../run/train.py"]
    relaunch = prepare_relaunch(
        job(elsewhere, launcher, ["python", "../run/train.py"]), fix(place / "train.py"), tmp_path / "copy"
    )
    assert relaunch.command[-1] == str(tmp_path / "copy" / "train.py")
    assert (tmp_path / "copy" / "train.py").read_text() == "new\n"


def test_data_is_left_out_and_reported(place: Path, tmp_path: Path) -> None:
    (place / "data.bin").write_bytes(bytes(5_000_000))
    relaunch = prepare_relaunch(
        job(place, [*RUN, "train.py", "--lr", "1"], RANK), fix(place / "train.py"), tmp_path / "copy"
    )
    assert relaunch.left_out == ["data.bin"]


def test_large_directory_is_reduced_to_code(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddpwizard.app.fixes.relaunch.TREE_LIMIT_FILES", 1)
    relaunch = prepare_relaunch(
        job(place, [*RUN, "train.py", "--lr", "1"], RANK), fix(place / "train.py"), tmp_path / "copy"
    )
    assert (tmp_path / "copy" / "train.py").read_text() == "new\n"
    assert relaunch.left_out


def test_relaunch_that_is_refused(place: Path, tmp_path: Path) -> None:
    good = job(place, [*RUN, "train.py", "--lr", "1"], RANK)
    with pytest.raises(UserError, match="2 ranks, 1 of them on this host"):
        prepare_relaunch(job(place, [], RANK, LOCAL_WORLD_SIZE="1"), fix(place / "train.py"), tmp_path / "b")
    with pytest.raises(UserError, match="not known"):
        prepare_relaunch(job(place, [], ["python", "-c", "code"]), fix(place / "train.py"), tmp_path / "c")
    (tmp_path / "other.py").write_text("old\n")
    with pytest.raises(UserError, match="outside"):
        prepare_relaunch(good, fix(tmp_path / "other.py"), tmp_path / "d")


def test_a_file_that_was_corrected_by_hand_runs_as_it_is_now(place: Path) -> None:
    command = [*RUN, "train.py", "--lr", "1"]
    assert plan_relaunch(job(place, command, RANK), fix(place / "train.py", before="other\n")).files == {}


def test_in_a_private_file_system_the_job_keeps_its_paths_and_nothing_is_written_yet(place: Path) -> None:
    script = str(place / "train.py")
    relaunch = plan_relaunch(
        job(place, [*RUN, "--nproc-per-node=2", script], ["python", "-u", script]), fix(Path(script))
    )
    assert relaunch.command[-1] == script
    assert (relaunch.cwd, relaunch.root, relaunch.copy) == (place, place, place)
    assert relaunch.files == {script: "new\n"}
    assert (place / "train.py").read_text() == "old\n"


def test_absolute_paths_of_the_code_into_its_own_directory_point_to_the_copy(place: Path, tmp_path: Path) -> None:
    (place / "parts" / "model.py").write_text(f'BEST = "{place}/best.pt"\n')
    prepare_relaunch(job(place, [*RUN, "train.py", "--lr", "1"], RANK), fix(place / "train.py"), tmp_path / "copy")
    assert (tmp_path / "copy" / "parts" / "model.py").read_text() == f'BEST = "{tmp_path}/copy/best.pt"\n'
