"""Each patch of the review, proved by running: the script went wrong on two ranks, and goes right with the patch.

Plain ``python`` gives the same before and after, a second review finds nothing, and undo restores the script.
"""

from pathlib import Path

import pytest
from helpers.command import ddpwizard
from helpers.patched_scripts import DEVICE, GLOBAL_RANK_PASSED, LOCAL_RANK_AS_RANK, SCRIPTS, WRITER_OF_EACH_NODE
from helpers.two_ranks import END, START, ForkedRun, on_two_ranks, plain, two_nodes

pytestmark = [pytest.mark.jobs, pytest.mark.slow]


@pytest.mark.parametrize("name", SCRIPTS)
def test_patched_script_does_right_where_it_went_wrong(name: str, tmp_path: Path) -> None:
    case = SCRIPTS[name]
    script = tmp_path / "train.py"
    script.write_text(case.text)

    alone = plain(tmp_path)
    assert alone.code == 0, alone.log
    assert not [text for text in case.plain if text not in alone.log], alone.log
    wrong = on_two_ranks(tmp_path, 90 if case.before else 10)
    assert (wrong.code == 0) is bool(case.before), wrong.log
    assert not [text for text in case.before if text not in wrong.log], wrong.log

    fixed = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert fixed.stderr.count("applied ") == 1
    assert ddpwizard("review", "train.py", cwd=tmp_path).returncode == 0

    alone = plain(tmp_path)
    assert alone.code == 0, alone.log
    assert not [text for text in case.plain if text not in alone.log], alone.log
    right = on_two_ranks(tmp_path)
    assert right.code == 0, right.log
    assert not [text for text in case.after if text not in right.log], right.log

    assert ddpwizard("undo", "--yes", cwd=tmp_path).returncode == 0
    assert script.read_text() == case.text


@pytest.mark.calibration
@pytest.mark.parametrize("text", [DEVICE, GLOBAL_RANK_PASSED], ids=["chosen", "passed"])
def test_second_node_uses_its_first_gpu_after_the_patch(text: str, tmp_path: Path) -> None:
    """Two nodes with one process each, both on this machine."""
    script = tmp_path / "train.py"
    script.write_text(text)
    assert "device cuda:0" in plain(tmp_path).log
    assert devices(two_nodes(tmp_path)) == ["cuda:0", "cuda:1"]

    assert ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path).returncode == 0
    assert "device cuda:0" in plain(tmp_path).log
    assert devices(two_nodes(tmp_path)) == ["cuda:0", "cuda:0"]
    assert ddpwizard("review", "train.py", cwd=tmp_path).returncode == 0


def devices(run: ForkedRun) -> list[str]:
    return sorted(line.removeprefix("device ") for line in run.log.splitlines() if line.startswith("device "))


def test_ranks_of_two_nodes_differ_after_the_patch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOCAL_RANK_AS_RANK)
    assert two_nodes(tmp_path, 10).code

    assert ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path).returncode == 0
    fixed = two_nodes(tmp_path)
    assert fixed.code == 0, fixed.log
    assert "rank 0 of 2" in fixed.log
    assert "rank 1 of 2" in fixed.log
    assert ddpwizard("review", "train.py", cwd=tmp_path).returncode == 0


def test_one_rank_of_all_writes_after_the_patch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRITER_OF_EACH_NODE)
    assert "the file of another node" in two_nodes(tmp_path).log

    assert ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path).returncode == 0
    fixed = two_nodes(tmp_path)
    assert fixed.code == 0, fixed.log
    assert ddpwizard("review", "train.py", cwd=tmp_path).returncode == 0


# The leader calls the workers from a function that an optimizer runs; rank 1 answers in a loop.
LEADER_AND_WORKER = f"""\
{START}
weight = nn.Parameter(torch.tensor(4.0))
signal = torch.zeros(1)


def closure():
    if rank == 0 and distributed:
        signal.fill_(1)
        dist.broadcast(signal, src=0)
    weight.grad = None
    loss = (weight - rank) ** 2
    loss.backward()
    total = loss.detach().clone()
    if distributed:
        dist.all_reduce(total)
        dist.all_reduce(weight.grad)
    return total


if rank == 0:
    torch.optim.LBFGS([weight], max_iter=3).step(closure)
    if distributed:
        signal.fill_(0)
        dist.broadcast(signal, src=0)
else:
    while True:
        dist.broadcast(signal, src=0)
        if signal.item() == 0:
            break
        closure()
if distributed:
    dist.broadcast(weight.data, src=0)
print(f"rank {{rank}} is done\\n", end="")
{END}"""


def test_leader_and_workers_are_left_as_they_are(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEADER_AND_WORKER)
    before = on_two_ranks(tmp_path)
    assert before.code == 0, before.log
    assert "rank 1 is done" in before.log
    assert plain(tmp_path).code == 0

    reviewed = ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=tmp_path)
    assert reviewed.returncode == 0, reviewed.stdout
    assert script.read_text() == LEADER_AND_WORKER
