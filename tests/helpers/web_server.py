"""A running ``ddpwizard serve``."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psutil


class Served(NamedTuple):
    """A running server and its address."""

    process: subprocess.Popen[str]
    url: str

    @property
    def host(self) -> str:
        return self.url.split("/")[2]

    @property
    def tabs(self) -> list[int]:
        """Return the processes of the tabs."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]


@contextmanager
def web_server() -> Iterator[Served]:
    """Yield a server, which has ended when this is left."""
    command = [sys.executable, "-m", "ddpwizard", "--ascii", "serve", "--allow", "reads"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Served(process, process.stdout.readline().strip())
        finally:
            process.kill()
