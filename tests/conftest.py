"""Fixtures for all tests: no test touches the state or the settings of the user who runs it.

Properties use the same examples in each run and have no deadline; ``make soak`` searches for new examples,
ten times as many.
"""

import collections
import functools
import gc
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

settings.register_profile("tests", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("tests"), derandomize=False, max_examples=1000)
settings.load_profile("tests")

# A shell starts what it runs in the background with these ignored, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# The tests start ddpwizard hundreds of times: its modules are compiled once, not in each process. So are the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A worker keeps half a million objects of its tests: collections took a third of the time it needs to start.
gc.set_threshold(50_000, 20, 20)


MARK_OF_FILE = re.compile(r"^pytestmark = [^\]]*?\bmark\.jobs\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only files in which the mark ``jobs`` selects a test: all files take a worker ten seconds of CPU."""
    selected = config.getoption("markexpr") or ""
    if not collection_path.match("test_*.py") or "jobs" not in selected:
        return None
    text = collection_path.read_text()
    if selected.startswith("jobs ") and "mark.jobs" not in text:
        return True
    if selected.startswith("not jobs ") and MARK_OF_FILE.search(text):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the tests that take longest first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Print the most frequent reasons of failures where an internal error makes pytest leave the summary out."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus != pytest.ExitCode.INTERNAL_ERROR or terminal is None:
        return
    failures = [*terminal.stats.get("failed", ()), *terminal.stats.get("error", ())]
    errors = [failure.longreprtext.rpartition("\nE  ")[2].partition("\n")[0] for failure in failures]
    terminal.write_line("")
    for reason, count in collections.Counter(errors).most_common(10):
        terminal.write_line(f"{count} failures: {reason.strip()[:200]}")


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape lone surrogates: xdist cannot send them, and one report with them ends the run of all workers."""
    return escape_surrogates((yield))


def escape_surrogates(value: Any) -> Any:
    """Return the data of a report with texts that UTF-8 can encode."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {escape_surrogates(key): escape_surrogates(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(escape_surrogates, value))
    return value


def pytest_collection_finish() -> None:
    """Exclude the collected tests and all loaded modules from later collections of garbage."""
    gc.freeze()


class SchedulingByFixture(LoadScopeScheduling):
    """Give a worker one test at a time, or the tests of a file together where they share a fixture."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if has_module_fixture(self.config.rootpath / file) else nodeid


@functools.cache
def has_module_fixture(file: Path) -> bool:
    """Return whether the tests of a file share a fixture, which each worker would make again."""
    return 'scope="module"' in file.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Replace ``--dist loadgroup``, for which xdist changes node ids that pytest 9.2 no longer lets it change."""
    return SchedulingByFixture(config, log) if config.getoption("dist") == "loadgroup" else None


OWN_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
INSIDE = "DDPWIZARD_TEST_HAS_OWN_PROCESSES"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test marked ``alone`` in a process namespace of its own, where no other job is seen.

    Without permission for namespaces it runs here, and any other job of this machine disturbs it.
    """
    if not pyfuncitem.get_closest_marker("alone") or INSIDE in os.environ:
        return None
    if not shutil.which("unshare") or subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True).returncode:
        return None
    command = [*OWN_NAMESPACE, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    done = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, env={**os.environ, INSIDE: "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True


@pytest.fixture(scope="session")
def state_roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """State directories, one per test, numbered here: ``mktemp`` lists all earlier directories to find a number."""
    parent = tmp_path_factory.mktemp("xdg")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def state(
    tmp_path_factory: pytest.TempPathFactory, state_roots: Iterator[Path], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A state directory of the test's own; processes it starts inherit it."""
    root = next(state_roots)
    root.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "config"))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return root / "state" / "ddpwizard"
