"""The last lines that the ranks of a run print themselves."""

import pytest
from ddpwizard.app.fixes.watch_relaunch import last_lines

NOTICE = """*****************************************
Setting OMP_NUM_THREADS environment variable for each process to be 1 in default
*****************************************
"""
WARNING = "[rank0]:[W1122 17:03:11.123456789 socket.cpp:207] [c10d] The hostname of the client socket cannot be found\n"
LAUNCHER = "W1122 22:13:35.594000 24603 torch/distributed/run.py:874] Setting OMP_NUM_THREADS for each process\n"
ERROR = "[rank1]:[E1122 17:03:11.123456789 ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed\n"
SUMMARY = "E1122 17:03:12.000000 4711 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1)\n"


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("loss 1.0\ndone\n", "loss 1.0\ndone"),
        (NOTICE + "loss 1.0\n" + WARNING + "done\n", "loss 1.0\ndone"),
        (LAUNCHER + WARNING, ""),
        (NOTICE + ERROR + SUMMARY + "train.py FAILED\n", ERROR.strip()),
        ("/lib/torch/x.py:12: FutureWarning: this will change\nstep 1\n", "step 1"),
        ("\n".join(f"step {n}" for n in range(9)), "\n".join(f"step {n}" for n in range(3, 9))),
    ],
)
def test_only_own_lines_of_the_ranks_are_shown(log: str, shown: str) -> None:
    assert last_lines(log) == shown
