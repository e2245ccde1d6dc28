"""A run for proof changes no byte of what is the user's: with the kernel's help, on a copy, or it is refused."""

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes.relaunch import Relaunch
from ddpwizard.app.fixes.sandbox import (
    filled_gpus,
    limited_command,
    offline_environment,
    private_command,
    private_mounts_problem,
    refuse_held_gpus,
    refuse_unread_writers,
    refuse_writes_outside,
    write_limit_problem,
    write_plan,
)
from ddpwizard.app.system.subprocesses import run_process
from ddpwizard.app.system.supervisor import remove_tree
from ddpwizard.app.triage.types import GpuUse, JobReport
from helpers.recorded_state import report
from msgspec.structs import replace

NOBODY = 65534
SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/bin")
# Each writes to JOB (its own directory) or DATA (another one), and ends with 0 only if it could.
WRITERS = {
    "save": "import pickle\nwith open('DATA/best.pt', 'wb') as f: pickle.dump([1], f)\nopen('DATA/best.pt').close()",
    "own directory": "open('JOB/best.pt', 'w').write('new')\nassert open('best.pt').read() == 'new'",
    "write_text": "from pathlib import Path\nPath('DATA/best.pt').write_text('new')\nPath('DATA/more').write_text('x')",
    "rename": "import os\nos.rename('DATA/best.pt', 'DATA/old.pt')\nassert not os.path.exists('DATA/best.pt')",
    "sqlite": "import sqlite3\nc = sqlite3.connect('DATA/runs.db')\nc.execute('create table t (a)')\nc.commit()",
    "copy": "import shutil\nshutil.copy('DATA/log.txt', 'DATA/best.pt')\nshutil.copytree('JOB', 'DATA/job')",
    "memory map": "import mmap, os\nf = open('DATA/best.pt', 'r+b')\nm = mmap.mmap(f.fileno(), 0)\nm[0:1] = b'#'",
    "remove": "import os, shutil\nos.remove('DATA/best.pt')\nshutil.rmtree('DATA/runs')",
    "mkdir": "import os\nos.makedirs('DATA/runs/2/checkpoints')\nos.chmod('DATA/best.pt', 0o600)",
    "append": "open('DATA/log.txt', 'a').write('step 1')\nopen('JOB/log.txt', 'a').write('x')",
    "shared memory": "open('/dev/shm/ddpwizard-test', 'w').write('x')",
    "child": "import subprocess\nsubprocess.run(['sh', '-c', 'echo x > DATA/best.pt; rm -r DATA/runs'], check=True)",
}


def state_of(directory: Path) -> dict[str, tuple[int, str]]:
    """Return the mode and content of everything below a directory."""
    return {
        str(path): (path.lstat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        for path in sorted(directory.rglob("*"))
    }


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make_place(tmp_path / "user")


def make_place(user: Path) -> Path:
    """Make the directories of a job and of its data."""
    for name in ("job", "data/runs"):
        (user / name).mkdir(parents=True)
    for name in ("job/best.pt", "job/log.txt", "data/best.pt", "data/log.txt", "data/runs/1"):
        (user / name).write_text("my precious checkpoint")
    return user


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that other users can reach: pytest closes its own for them, and a second pytest does so again."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> None:
    if problem := asyncio.run(private_mounts_problem(tmp_path_factory.mktemp("mounts") / "trial")):
        pytest.skip(problem)


@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize("name", WRITERS)
def test_not_one_byte_changes_outside_of_the_private_file_system(name: str, place: Path, tmp_path: Path) -> None:
    script = place / "job" / "train.py"
    script.write_text(WRITERS[name].replace("JOB", str(place / "job")).replace("DATA", str(place / "data")))
    before = state_of(place)
    patched = {str(script): script.read_text() + "\nprint('patched')\n"}
    plan = write_plan(tmp_path / "run", patched, place / "job", [str(place / "data")])
    done = asyncio.run(run_process(private_command([sys.executable, "train.py"], plan), limit_s=30, cwd=place / "job"))
    assert (done.status, done.log.strip()) == ("ok", "patched"), done.log
    assert state_of(place) == before
    assert not Path("/dev/shm/ddpwizard-test").exists()
    remove_tree(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("mounts")
@pytest.mark.skipif(os.getuid() != 0 or not SYSTEM_PYTHON, reason="needs root to become another user, and a Python")
def test_a_user_without_rights_is_kept_apart_as_well(public_directory: Path) -> None:
    place = make_place(public_directory / "user")
    job, data = place / "job", place / "data"
    plan = write_plan(public_directory / "run", {str(job / "new.py"): "x"}, job, [str(data)])
    for path in [public_directory, *public_directory.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    before = state_of(place)
    work = (
        "cat new.py; id -u; rm ../data/best.pt; rm -r ../data/runs; echo x >> log.txt; mkdir ../data/more; ls ../data"
    )
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command += [str(SYSTEM_PYTHON), *private_command(["sh", "-ec", work], plan)[1:]]
    done = asyncio.run(run_process(command, limit_s=30))
    if "no private file system: unshare" in done.log:
        pytest.skip("the kernel gives users no namespaces")
    assert (done.status, done.log.split()) == ("ok", [f"x{NOBODY}", "log.txt", "more"]), done.log
    assert state_of(place) == before


@pytest.mark.usefixtures("mounts")
def test_a_plan_that_cannot_be_followed_starts_nothing(place: Path, tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "run", {str(place / "no" / "such" / "file"): "x"}, place / "job", [])
    done = asyncio.run(run_process(private_command(["touch", str(place / "started")], plan), limit_s=30))
    assert done.code == 125
    assert done.log.startswith("no private file system: ")
    assert not (place / "started").exists()


def copied(directory: Path, text: str) -> Relaunch:
    """A script on a copy, of which ``original`` was copied."""
    (directory / "train.py").write_text(text)
    return Relaunch(
        command=["python", "train.py"],
        script_index=1,
        script=directory / "train.py",
        cwd=directory,
        environ={},
        root=directory.parent / "original",
        copy=directory,
    )


def test_on_a_copy_a_script_that_writes_elsewhere_is_refused_with_the_line_of_the_original(tmp_path: Path) -> None:
    problem = "unshare: Operation not permitted"
    refuse_writes_outside(copied(tmp_path, 'import torch\ntorch.save(1, "out/" + name)\n'), problem)
    outside = copied(tmp_path, 'import torch\n\ntorch.save(1, "/data/best.pt")\n')
    with pytest.raises(UserError, match=r"original/train.py:3 .*writes to /data/best.pt.*Operation not permitted"):
        refuse_writes_outside(outside, problem)
    with pytest.raises(UserError, match=r"writes to cfg\.log, known only when it runs"):
        refuse_writes_outside(copied(tmp_path, 'open(cfg.log, "w")\n'), problem)


def test_on_a_copy_a_script_whose_writes_cannot_be_read_is_refused(tmp_path: Path) -> None:
    refuse_unread_writers(copied(tmp_path, "import os, subprocess\nos.getcwd()\n"), "no")
    for call in ("subprocess.run(['sync'])", "os.system('sync')", "subprocess.Popen('sync')"):
        with pytest.raises(UserError, match=r"train.py:2 \(.*starts another program"):
            refuse_unread_writers(copied(tmp_path, f"import os, subprocess\n{call}\n"), "no")
    with pytest.raises(UserError, match=r"os\.chdir\) changes the working directory"):
        refuse_unread_writers(copied(tmp_path, "import os\nos.chdir('/data')\n"), "no")


@pytest.mark.parametrize("kernel", ["with", "without"])
def test_the_kernel_can_limit_writes_to_a_directory(kernel: str, tmp_path: Path) -> None:
    problem = asyncio.run(write_limit_problem(tmp_path if kernel == "with" else tmp_path / "missing"))
    if kernel == "without":
        assert "no limit of writes: " in problem
        return
    if problem:
        pytest.skip(problem)
    (tmp_path / "work").mkdir()
    (tmp_path / "mine").write_text("mine")
    work = "echo x > work/new; cat mine > /dev/null; rm mine; echo x >> mine; mkdir more; mv mine work; true"
    command = limited_command(["sh", "-c", work], tmp_path / "work")
    done = asyncio.run(run_process(command, limit_s=30, cwd=tmp_path))
    assert done.status == "ok" and done.log.count("ermission denied") == 4, done.log
    assert (tmp_path / "mine").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "new", "work"]


def on_gpus(directory: Path, *used_bytes: int) -> JobReport:
    recorded = report(directory)
    devices = [GpuUse(index, 100, held) for index, held in enumerate(used_bytes)]
    seen = [replace(each, devices=devices) for each in recorded.observed.seen[:1]]
    return replace(recorded, observed=replace(recorded.observed, seen=seen))


def test_gpus_that_the_hung_job_fills_are_refused_by_number(tmp_path: Path) -> None:
    job = on_gpus(tmp_path, 60 << 30, 20 << 30, 0)
    total = dict.fromkeys(range(3), 80 << 30)
    assert filled_gpus(job, total) == [0]
    assert filled_gpus(job, {}) == [0, 1], "with an unknown total, a GPU in use counts as full"
    with pytest.raises(UserError, match="still holds most memory of GPU 0: "):
        refuse_held_gpus(job, total)
    refuse_held_gpus(on_gpus(tmp_path, 20 << 30), total)


def test_trackers_and_hubs_are_offline() -> None:
    given = {"WANDB_MODE": "online", "PATH": "/bin", "MLFLOW_TRACKING_URI": "http://mlflow:5000"}
    environ = offline_environment(given, Path("/job"))
    assert (environ["WANDB_MODE"], environ["HF_HUB_OFFLINE"], environ["PATH"]) == ("offline", "1", "/bin")
    assert environ["MLFLOW_TRACKING_URI"] == "file:/job/mlruns"
