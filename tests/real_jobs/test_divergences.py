"""The programs that the evaluation is tested with do what is claimed of them, on two ranks over gloo."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.diverging_programs import DIVERGING, SAME, source

pytestmark = pytest.mark.calibration
LIMIT_S = 120
AT_A_TIME = 2


def exit_codes(code: str, directory: Path) -> list[int]:
    """Run a program on two ranks and return how each ended."""
    directory.mkdir()
    script = directory / "train.py"
    script.write_text(source(code))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    environ = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            cwd=directory,
            env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=(directory / f"{rank}.log").open("wb"),
        )
        for rank in range(2)
    ]
    return [rank.wait(LIMIT_S) for rank in ranks]


def test_each_program_does_what_is_claimed(tmp_path: Path) -> None:
    programs = [(name, code, True) for name, code in DIVERGING.items()] + [(n, c, False) for n, c in SAME.items()]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        ended = list(pool.map(lambda each: exit_codes(each[1], tmp_path / each[0].replace(" ", "-")), programs))
    wrong = [
        (name, codes) for (name, _, diverges), codes in zip(programs, ended, strict=True) if any(codes) is not diverges
    ]
    assert not wrong
