"""The offline archive: installed without a network into an empty environment, it works without torch."""

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from ddpwizard import __version__
from ddpwizard.assets.make_bundle import make_bundle, requirement_line

pytestmark = pytest.mark.jobs
NO_NETWORK = ["unshare", "--net"]
LOG = "[rank0]: RuntimeError: The server socket has failed to listen. port: 29500, useIpv6: false, EADDRINUSE\n"


def without_network() -> list[str]:
    """Return the words that start a command in an empty network namespace, if this user may make one."""
    allowed = shutil.which("unshare") and not subprocess.run([*NO_NETWORK, "true"], capture_output=True).returncode
    return NO_NETWORK if allowed else []


@pytest.mark.long
def test_bundle_installs_and_works_without_a_network_and_without_torch(tmp_path: Path):
    archive = make_bundle(tmp_path)
    with tarfile.open(archive) as packed:
        names = packed.getnames()
        packed.extractall(tmp_path / "there", filter="data")
    wheels = [name.rpartition("/")[2] for name in names if name.endswith(".whl")]
    assert f"ddpwizard-{__version__}-py3-none-any.whl" in wheels
    assert not [name for name in wheels if name.startswith(("torch", "numpy", "nvidia_cu"))]
    (content,) = (tmp_path / "there").iterdir()
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "LANG": "C.UTF-8",
        "PYTHON": shutil.which("python3") or "",
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*without_network(), *command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300
        )

    installed = run("sh", str(content / "install.sh"), str(tmp_path / "venv"))
    assert installed.returncode == 0, installed.stderr
    program = installed.stdout.strip()
    assert program == str(tmp_path / "venv" / "bin" / "ddpwizard")
    assert run(program, "--version").stdout.split()[-1] == __version__
    assert run(str(tmp_path / "venv" / "bin" / "python"), "-c", "import torch").returncode == 1
    (tmp_path / "train.log").write_text(LOG)
    diagnosed = run(program, "diagnose", "train.log", "--json")
    assert json.loads(diagnosed.stdout)["causes"][0]["id"] == "port-in-use", diagnosed.stderr
    planned = run(program, "plan", "--model", "gpt2", "--gpus", "2", "--gpu", "H100", "--json")
    assert json.loads(planned.stdout)["candidates"][0]["fits"] is True, planned.stderr
    assert "torch" in run(program, "learn", "--plain").stdout + run(program, "doctor", "--full").stdout


def test_installer_names_the_python_it_needs(tmp_path: Path):
    content = tmp_path / "ddpwizard-1.0-python3.1-x86_64"
    content.mkdir()
    shutil.copy(Path(__file__).parents[1] / "assets" / "install.sh", content)
    done = subprocess.run(["sh", str(content / "install.sh")], capture_output=True, text=True)
    assert done.returncode == 2 and "for Python 3.1," in done.stderr and not (tmp_path / ".local").exists()


@pytest.mark.parametrize(
    ("line", "version", "expected"),
    [
        ("click==8.5.1", "3.10", "click==8.5.1"),
        ('networkx==3.6.1; python_version >= "3.11"', "3.10", ""),
        ('networkx==3.6.1; python_version >= "3.11"', "3.12", "networkx==3.6.1"),
        ("# a comment", "3.12", ""),
    ],
)
def test_constraints_are_those_of_the_other_python(line: str, version: str, expected: str):
    assert requirement_line(line, {"python_version": version, "extra": ""}) == expected
