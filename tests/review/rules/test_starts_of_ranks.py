"""Ranks that a program starts, their numbers and their process group, with look-alikes that meet."""

from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.review_snippets import KNOWLEDGE, lines, script

SPAWN = """
import torch.multiprocessing as mp

def work(PARAMETERS):
    SETTINGS
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    dist.barrier()

if __name__ == "__main__":
    mp.spawn(work, args=ARGS, nprocs=2)
"""
ADDRESS = 'os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "29511"'
PROCESSES = """
import torch.multiprocessing as mp

def work(rank, size):
    BODY

if __name__ == "__main__":
    processes = []
    for rank in range(2):
        p = mp.Process(target=work, args=(rank, 2))
        p.start()
        INSIDE
    BEHIND
"""
JOIN = "for p in processes:\n        p.join()"
GROUP = """
rank = int(os.environ["RANK"])
size = int(os.environ["WORLD_SIZE"])
BEFORE
dist.init_process_group("gloo", ARGUMENTS)
BEHIND
"""


def spawned(parameters: str, args: str, settings: str = ADDRESS) -> str:
    return SPAWN.replace("PARAMETERS", parameters).replace("ARGS", args).replace("SETTINGS", settings)


def processes(
    inside: str, behind: str, body: str = 'dist.init_process_group("gloo", rank=rank, world_size=size)'
) -> str:
    return PROCESSES.replace("INSIDE", inside).replace("BEHIND", behind).replace("BODY", body)


def group(arguments: str, before: str = "pass", behind: str = "dist.barrier()") -> str:
    return GROUP.replace("ARGUMENTS", arguments).replace("BEFORE", before).replace("BEHIND", behind)


START = "mp.spawn(work, args=ARGS, nprocs=2)"
UNMET = {
    "the size first": (spawned("world_size, rank", "(2,)"), START.replace("ARGS", "(2,)")),
    "no address": (
        spawned("rank, world_size", "(2,)", "pass"),
        'dist.init_process_group("gloo", rank=rank, world_size=world_size)',
    ),
    "one after the other": (processes("p.join()", "pass"), "p.join()"),
}
MEETING = {
    "the rank first": spawned("rank, world_size", "(2,)"),
    "a rank that is passed": spawned("gpu, rank, world_size", "(int(os.environ['NODE_RANK']), 2)"),
    "an address of the caller": spawned("rank, world_size", "(2,)", "setup_master(os.environ['MASTER_ADDR'])"),
    "all at once": processes("processes.append(p)", JOIN),
    "processes that are no ranks": processes("p.join()", "pass", "print(rank)"),
}
PORTS = {
    "a port of each rank": group("rank=rank, world_size=size", 'os.environ["MASTER_PORT"] = str(29500 + rank)'),
    "an address of each rank": group('init_method=f"tcp://localhost:{29500 + rank}", rank=rank, world_size=size'),
}
COMMON_PORTS = {
    "one port": group("rank=rank, world_size=size", 'os.environ["MASTER_PORT"] = str(29500 + size)'),
    "a port of each group": group("rank=rank, world_size=size", 'os.environ["MASTER_PORT"] = str(29500 + rank // 8)'),
}


@pytest.mark.parametrize(("code", "line"), UNMET.values(), ids=UNMET)
def test_started_processes(code: str, line: str) -> None:
    assert lines(code, "DW123") == [line]


@pytest.mark.parametrize("code", MEETING.values(), ids=MEETING)
def test_started_processes_that_meet(code: str) -> None:
    assert lines(code, "DW123") == []


@pytest.mark.parametrize("code", PORTS.values(), ids=PORTS)
def test_places_of_each_rank(code: str) -> None:
    assert len(lines(code, "DW113")) == 1


@pytest.mark.parametrize("code", COMMON_PORTS.values(), ids=COMMON_PORTS)
def test_common_places(code: str) -> None:
    assert lines(code, "DW113") == []


def test_numbers_of_ranks() -> None:
    code = group("rank=NUMBER, world_size=size")
    assert len(lines(code.replace("NUMBER", "rank + 1"), "DW105")) == 1
    assert lines(code.replace("NUMBER", "size - 1 - rank"), "DW105") == []
    assert lines(code.replace("NUMBER", "rank"), "DW105") == []


def test_a_rank_that_is_an_option() -> None:
    code = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int, default=DEFAULT)
args = parser.parse_args()
dist.init_process_group("gloo", rank=args.local_rank, world_size=int(os.environ["WORLD_SIZE"]))
dist.barrier()
"""
    assert len(lines(code.replace("DEFAULT", "0"), "DW105")) == 1
    assert lines(code.replace("DEFAULT", 'int(os.environ["RANK"])'), "DW105") == []


def test_a_group_that_some_ranks_make() -> None:
    code = 'rank = int(os.environ["RANK"])\nif WHO:\n    dist.init_process_group("gloo")\nDO\n'
    wrong = code.replace("WHO", "rank == 0").replace("DO", "dist.all_reduce(torch.ones(1))")
    assert lines(wrong, "DW115") == ['dist.init_process_group("gloo")']
    asked = code.replace("WHO", "rank == 0").replace("DO", "if dist.is_initialized():\n    print(dist.get_rank())")
    assert lines(asked, "DW115") == []
    assert lines(code.replace("WHO", "size > 1").replace("DO", "print(1)"), "DW115") == []


def test_a_program_that_makes_no_group() -> None:
    code = "def main():\n    dist.all_reduce(torch.ones(1))\nmain()\n"
    assert lines(code, "DW115") == ["dist.all_reduce(torch.ones(1))"]
    assert lines("from start import setup\nsetup()\n" + code, "DW115") == []


HELPERS = """
    def ready():
        return dist.is_available() and dist.is_initialized()
    def size():
        {}
    print(size())
    dist.init_process_group("gloo")
"""
ASKING = {
    "in an expression": "return dist.get_world_size() if ready() else 1",
    "before a return": "if not ready(): return 1\n        return dist.get_world_size()",
    "under a name": "known = ready()\n        return dist.get_world_size() if known else 1",
}


@pytest.mark.parametrize("way", ASKING)
def test_helper_that_asks_through_another_one(way: str) -> None:
    assert lines(HELPERS.format(ASKING[way]), "DW115") == []


def test_helper_that_another_one_does_not_keep_from_a_missing_group() -> None:
    assert lines(HELPERS.format("ready()\n        return dist.get_world_size()"), "DW115") == ["print(size())"]
    without = HELPERS.replace("dist.is_available() and dist.is_initialized()", "size is not None")
    assert lines(without.format(ASKING["in an expression"]), "DW115") == ["print(size())"]


def test_helper_of_another_module_that_asks_for_the_group(tmp_path: Path) -> None:
    helper = tmp_path / "comm.py"
    code = "    def size():\n        return dist.get_world_size() if ready() else 1\n    print(size())\n"
    text = script("    from comm import ready\n" + code + '    dist.init_process_group("gloo")\n')
    (tmp_path / "train.py").write_text(text)
    helper.write_text("import torch.distributed as dist\ndef ready():\n    return dist.is_initialized()\n")
    assert review_file(tmp_path / "train.py", KNOWLEDGE) == []
    helper.write_text("def ready():\n    return bool(__name__)\n")
    assert [each.rule for each in review_file(tmp_path / "train.py", KNOWLEDGE)] == ["DW115"]
