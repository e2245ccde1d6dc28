"""A run for proof, as planned and started by the wizard, of scripts that write: not one byte of the user's changes."""

import asyncio
import base64
import hashlib
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.fixes import proof
from ddpwizard.app.fixes.proof import prove_by_run
from ddpwizard.app.fixes.proof_plan import plan_command_proof
from ddpwizard.app.fixes.sandbox import private_mounts_problem, write_limit_problem
from ddpwizard.app.fixes.types import FilePatch, Fix
from ddpwizard.app.session import Outcome, Session

BROKEN = "print({}['price'])\n"
# Each writes to its own directory or to DATA, another one, and ends with 0 only if it could.
WRITERS = {
    "checkpoint by absolute path": "import pickle\nwith open('DATA/best.pt', 'wb') as f: pickle.dump([1], f)",
    "path of an option": "import sys\nopen(sys.argv[1] + '/best.pt', 'w').write('new')",
    "path that only the run knows": "import base64\nopen(base64.b64decode('BASE64').decode(), 'w').write('new')",
    "path above the directory": "open('../data/log.txt', 'a').write('step')",
    "through a link": "open('link/best.pt', 'w').write('new')",
    "another working directory": "import os\nos.chdir('DATA')\nopen('best.pt', 'w').write('new')",
    "home": "from pathlib import Path\n(Path.home() / '.cache/hub').mkdir(parents=True)\n"
    "(Path.home() / '.config/tracker').write_text('new')",
    "log file": "import logging\nlogging.basicConfig(filename='DATA/log.txt', level=20)\nlogging.info('step 1')",
    "database": "import sqlite3\nc = sqlite3.connect('DATA/runs.db')\nc.execute('pragma journal_mode=wal')\n"
    "c.execute('insert into runs values (2)')\nc.commit()",
    "database of keys": "import dbm.dumb\nd = dbm.dumb.open('DATA/keys')\nd['a'] = 'b'\nd.close()",
    "tracker that reads its variable": "import os\nfrom pathlib import Path\n"
    "assert os.environ['WANDB_MODE'] == 'offline'\n"
    "run = Path(os.environ.get('WANDB_DIR', 'DATA')) / 'wandb/offline-run'\nrun.mkdir(parents=True)\n"
    "(run / 'run.wandb').write_text('x')",
    "tracker with files": "import os, urllib.parse\nfrom pathlib import Path\n"
    "store = Path(urllib.parse.urlparse(os.environ['MLFLOW_TRACKING_URI']).path)\n(store / '0').mkdir(parents=True)\n"
    "(store / '0/meta.yaml').write_text('x')",
    "event file": "import struct, time\nopen(f'DATA/events.out.{time.time():.0f}', 'wb').write(struct.pack('Q', 1))",
    "rotation": "import os\nos.replace('DATA/best.pt', 'DATA/last.pt')\nos.link('DATA/last.pt', 'DATA/best.pt')",
    "clean-up": "import shutil, os\nshutil.rmtree('DATA/runs')\nos.makedirs('DATA/runs')",
    "shell": "import subprocess\nsubprocess.run('echo x > DATA/best.pt; rm -r DATA/runs', shell=True, check=True)",
    "process of its own": "import multiprocessing, pathlib\n"
    "def f(): pathlib.Path('DATA/best.pt').write_text('new')\n"
    "if __name__ == '__main__':\n"
    "  p = multiprocessing.Process(target=f)\n  p.start()\n  p.join()\n  assert p.exitcode == 0",
    "shared memory": "open('/dev/shm/ddpwizard-writing', 'w').write('x')",
    "rights and times": "import os\nos.chmod('DATA/best.pt', 0o600)\nos.utime('DATA/log.txt', (1, 1))",
}


def state_of(directory: Path) -> dict[str, tuple[int, float, str]]:
    """Return the mode, the time and the content of everything below a directory."""
    found: dict[str, tuple[int, float, str]] = {}
    for path in sorted(directory.rglob("*")):
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (path.lstat().st_mode, path.lstat().st_mtime, content)
    return found


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything that is the user's: the home directory, the job's with a script that fails, and one for data."""
    user = tmp_path / "user"
    for name in ("job", "data/runs", "home/.config"):
        (user / name).mkdir(parents=True)
    for name in ("job/log.txt", "data/best.pt", "data/log.txt", "data/runs/1", "home/.config/tracker"):
        (user / name).write_text("my precious checkpoint")
    (user / "job" / "link").symlink_to(user / "data")
    with closing(sqlite3.connect(user / "data" / "runs.db")) as runs:
        runs.execute("create table runs (id)")
    (user / "job" / "train.py").write_text(BROKEN)
    log = f"Traceback\n  File \"{user}/job/train.py\", line 1\nKeyError: 'price'\n"
    (user / "job" / "crash.log").write_text(log)
    monkeypatch.setenv("HOME", str(user / "home"))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return user


async def refused(_directory: Path) -> str:
    return "Operation not permitted"


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The reasons why this kernel does not offer the means, by their names."""
    directory = tmp_path_factory.mktemp("kernel")
    return {
        "a private file system": asyncio.run(private_mounts_problem(directory / "trial")),
        "a limit of writes": asyncio.run(write_limit_problem(directory)),
        "neither": "",
    }


@pytest.fixture(params=["a private file system", "a limit of writes", "neither"])
def kernel(request: pytest.FixtureRequest, problems: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The means that the kernel offers; it refuses the others."""
    if problem := problems[request.param]:
        pytest.skip(problem)
    if request.param != "a private file system":
        monkeypatch.setattr(proof, "private_mounts_problem", refused)
    if request.param == "neither":
        monkeypatch.setattr(proof, "write_limit_problem", refused)
    return request.param


def prove(name: str, user: Path) -> Outcome:
    """Prove a fix that ends the failure, and writes."""
    script, session = user / "job" / "train.py", Session.new()
    where = f"{user}/job/crash.log:3"
    session.append("evidence", id="log:c/0", source="log", what="KeyError: 'price'", where=where)
    encoded = base64.b64encode(f"{user}/data/best.pt".encode()).decode()
    text = WRITERS[name].replace("DATA", str(user / "data")).replace("BASE64", encoded)
    patch = FilePatch(path=str(script), before=BROKEN, after=text + "\n")
    fix = Fix(id="f", cause="c", title="t", safety="safe", patches=[patch])
    plan = plan_command_proof(f"python train.py {user / 'data'}", fix, session, user / "job", sys.executable)
    return asyncio.run(prove_by_run(plan, limit_s=30)).outcome


@pytest.mark.parametrize("name", WRITERS)
def test_not_one_byte_of_the_users_changes(name: str, kernel: str, user: Path) -> None:
    before = state_of(user)
    try:
        outcome = prove(name, user)
    except UserError as refusal:
        assert kernel != "a private file system"
        assert f"{user / 'job'}/train.py:" in refusal.message and "cannot keep that apart" in refusal.message
    else:
        assert kernel != "a private file system" or outcome == "proved", "it could write, and saw what it wrote"
    assert state_of(user) == before
    assert not Path("/dev/shm/ddpwizard-writing").exists()
