"""``make bundle``: one archive with the wheels of the wizard and its dependencies, for machines without a registry.

It is for the Python version and the platform that it is made for. torch is not in it: the wizard uses that of the
user's environment. ``install.sh`` makes an environment of it without a network.
"""

import argparse
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
WHEELS = "wheels"
INSTALLER = ROOT / "assets" / "install.sh"


def build_wheel(into: Path) -> Path:
    """Build a wheel of the working tree from a copy (a stale ``build/`` would be packed otherwise)."""
    source = into / "source"
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(into), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return next(into.glob("*.whl"))


def make_bundle(into: Path, version: str = OWN_VERSION) -> Path:
    """Write the archive for a Python version into a directory, and return its path."""
    with tempfile.TemporaryDirectory() as temporary:
        wheel = build_wheel(Path(temporary))
        name = f"{wheel.name.split('-py3')[0]}-python{version}-{platform.machine()}"
        content = Path(temporary, name)
        wheels = content / WHEELS
        wheels.mkdir(parents=True)
        shutil.copy(wheel, wheels)
        download(wheel, wheels, version)
        shutil.copy(INSTALLER, content)
        shutil.copy(ROOT / "LICENSE", content)
        into.mkdir(parents=True, exist_ok=True)
        path = into / f"{name}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(content, name)
    return path


def download(wheel: Path, wheels: Path, version: str) -> None:
    """Download the wheels of the dependencies, as tested with this version of Python."""
    markers = {**default_environment(), "python_version": version, "python_full_version": f"{version}.0", "extra": ""}
    tested = [requirement_line(line, markers) for line in (ROOT / "constraints.txt").read_text().splitlines()]
    constraints = wheels.with_name("constraints.txt")
    constraints.write_text("\n".join(filter(None, tested)) + "\n")
    elsewhere = [] if version == OWN_VERSION else ["--python-version", version]
    needed = [f"tomli=={line.partition('==')[2]}" for line in tested if line.startswith("tomli==")]
    command = [*PIP, "download", "--quiet", "--only-binary=:all:", *elsewhere, "--dest", str(wheels)]
    subprocess.run([*command, "--constraint", str(constraints), str(wheel), *needed], check=True, timeout=600)
    constraints.unlink()


def requirement_line(line: str, markers: dict[str, str]) -> str:
    """Return a line of constraints without its marker, or "" if the marker does not hold: pip would read it for the
    Python that runs it."""
    text = line.partition("#")[0].strip()
    requirement = Requirement(text) if text else None
    if requirement is None or (requirement.marker and not requirement.marker.evaluate(markers)):
        return ""
    return f"{requirement.name}{requirement.specifier}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python-version", default=OWN_VERSION, help="of the machines without a registry: 3.12")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    given = parser.parse_args(words)
    sys.stdout.write(f"{make_bundle(given.into, given.python_version)}\n")


if __name__ == "__main__":
    main()
