"""The wheel is complete: it has every package and data file, and runs in an empty venv without the checkout."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from ddpwizard.assets.make_bundle import build_wheel
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
CODE = ("app", "knowledge", "screens", "assets")


def shipped() -> set[str]:
    """Return every file of the checkout that the installed package needs."""
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *CODE, "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    kinds = (".py", ".yaml", ".tcss", ".msgpack", "calibration.json")
    scripts = ("assets/make_pictures.py", "assets/make_bundle.py")
    return {
        path
        for path in tracked
        if (path.endswith(kinds) or path.startswith(("assets/plan/", "assets/templates/", "assets/web/")))
        and not path.startswith(("tests/", "docs/", "knowledge/reports/"))
        and path not in scripts
        and (ROOT / path).exists()
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_every_package_and_data_file_is_in_the_wheel(wheel: Path):
    packed = {name.removeprefix("ddpwizard/") for name in zipfile.ZipFile(wheel).namelist()}
    assert shipped() - packed == set()


def test_the_manual_page_is_installed_where_man_searches(wheel: Path):
    (name,) = (
        name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".data/data/share/man/man1/ddpwizard.1")
    )
    assert zipfile.ZipFile(wheel).read(name) == (ROOT / "docs" / "ddpwizard.1").read_bytes()


def planned(directory: Path, *words: str) -> str:
    """Return the commands that make would run in a clone."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "__init__.py"):
        shutil.copy2(ROOT / name, directory)
    done = subprocess.run(["make", "-n", *words], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_installs_what_a_target_needs(tmp_path: Path):
    assert '-e ".[torch]"\n' in planned(tmp_path, "run")
    assert '-e ".[docs]"\n' in planned(tmp_path, "docs") and "torch numpy" not in planned(tmp_path, "docs")
    assert '-e ".[torch,serve,docs,dev]"\n' in planned(tmp_path, "install")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    assert "pip" not in planned(tmp_path, "run") + planned(tmp_path, "docs"), "everything is installed"
    assert ".venv/bin/ddpwizard learn;" in planned(tmp_path, "run", "ARGS=learn")


def test_nothing_else_is_in_the_wheel(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"ddpwizard"}
    assert not [name for name in names if name.startswith("ddpwizard/tests")]


def test_dependencies_are_lower_bounds_and_torch_is_an_extra(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    requires = [
        line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist")
    ]
    runtime = [line for line in requires if "extra ==" not in line]
    assert all("==" not in line and "<" not in line for line in runtime)
    assert not any(line.startswith("torch") for line in runtime)
    assert any(line.startswith("torch") and 'extra == "torch"' in line for line in requires)


def declared_distributions(wheel: Path) -> list[importlib.metadata.Distribution]:
    """Return the installed distributions that the wheel requires without an extra, and what those require."""
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    lines = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    found: dict[str, importlib.metadata.Distribution] = {}
    while lines:
        requirement = Requirement(lines.pop())
        if requirement.name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        distribution = found[requirement.name] = importlib.metadata.distribution(requirement.name)
        lines += distribution.requires or []
    return list(found.values())


def link_distribution(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    """Make an installed distribution importable from another directory of packages."""
    for name in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        if not (packages / name).exists():
            (packages / name).symlink_to(str(distribution.locate_file(name)))


@pytest.mark.slow
def test_wheel_runs_in_an_empty_venv(wheel: Path, tmp_path: Path):
    """The venv holds the wheel and the distributions that it declares, nothing else."""
    venv.create(tmp_path / "venv", with_pip=False)
    binaries = tmp_path / "venv" / "bin"
    install = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True, cwd=tmp_path, timeout=600)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    for distribution in declared_distributions(wheel):
        link_distribution(distribution, packages)
    env = {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    env |= {name: value for name, value in os.environ.items() if name.startswith("XDG_")}

    def installed(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [binaries / "ddpwizard", *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert installed("--version").returncode == 0
    explained = installed("explain", "unused-parameters")
    assert explained.returncode == 0, explained.stderr
    assert "find_unused_parameters" in explained.stdout
    saved = tmp_path / "machine.json"
    looked = installed("doctor", "--save", str(saved), "--json")
    assert looked.returncode in (0, 1), looked.stderr
    replayed = installed("doctor", "--replay", str(saved), "--json")
    assert replayed.returncode == looked.returncode, replayed.stderr
    assert json.loads(replayed.stdout)["checks"] == json.loads(looked.stdout)["checks"]
