"""Programs whose ranks part, and programs that look like it: found by evaluating the program, not by its text.

The truth of each was measured: ``tests/real_jobs/test_divergences.py`` runs them on two ranks over gloo.
"""

import ast
from pathlib import Path

import pytest
from ddpwizard.app.training_script.model.divergences import divergences
from ddpwizard.app.training_script.model.evaluated import Evaluated
from helpers.diverging_programs import DIVERGING, SAME, source


def places(tmp_path: Path, code: str) -> list[tuple[str, str]]:
    """Return the kind of each event that not all ranks reach, with its line."""
    script = tmp_path / "train.py"
    text = source(code)
    script.write_text(text)
    found = divergences(Evaluated(ast.parse(text), script, text)).found
    return [
        (each.first.kind, Path(each.first.site.path).read_text().splitlines()[each.first.site.line - 1])
        for each in found
    ]


@pytest.mark.parametrize("name", DIVERGING)
def test_ranks_that_part_are_found(name: str, tmp_path: Path) -> None:
    assert places(tmp_path, DIVERGING[name])


@pytest.mark.parametrize("name", SAME)
def test_ranks_that_do_the_same_are_not(name: str, tmp_path: Path) -> None:
    assert places(tmp_path, SAME[name]) == []


def test_a_function_of_another_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "metrics.py").write_text(
        "import torch.distributed as dist\ndef total(x):\n    dist.all_reduce(x)\n    return x\n"
    )
    code = "from metrics import total\nif rank == 0:\n    print(total(torch.ones(1)))\n"
    assert places(tmp_path, code) == [("all_reduce", "    dist.all_reduce(x)")]


def test_a_package_with_relative_imports_is_followed(tmp_path: Path) -> None:
    package = tmp_path / "lib"
    package.mkdir()
    (package / "__init__.py").write_text("from .sync import wait as hold\n")
    (package / "sync.py").write_text("import torch.distributed as dist\ndef wait():\n    dist.barrier()\n")
    assert places(tmp_path, "import lib\nif rank == 1:\n    lib.hold()\n") == [("barrier", "    dist.barrier()")]


def test_a_group_that_a_function_of_another_file_makes_is_not_all_ranks(tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text(
        "import torch.distributed as dist\n_GROUP = None\n"
        "def make(ranks):\n    global _GROUP\n    _GROUP = dist.new_group(ranks)\n"
        "def own():\n    return _GROUP\n"
    )
    code = "import groups\ngroups.make([0])\nif rank == 0:\n    dist.all_reduce(torch.ones(1), group=groups.own())\n"
    assert places(tmp_path, code) == []


def test_one_broadcast_on_both_sides_of_a_branch_gives_one_result(tmp_path: Path) -> None:
    code = """\
from mpi4py import MPI
if rank == 0:
    score = MPI.COMM_WORLD.bcast(measure())
else:
    score = MPI.COMM_WORLD.bcast(None)
if score < 1:
    dist.barrier()
"""
    assert places(tmp_path, code) == []
    assert places(tmp_path, code.replace("MPI.COMM_WORLD.bcast(None)", "2").replace("MPI.COMM_WORLD.bcast", "float"))


def test_the_condition_that_leaves_a_loop_is_named(tmp_path: Path) -> None:
    code = """\
for step in range(10):
    if rank == 0:
        print("step")
    if step >= 5 + rank:
        break
    dist.barrier()
"""
    script = tmp_path / "train.py"
    script.write_text(source(code))
    (found,) = divergences(Evaluated(ast.parse(source(code)), script, source(code))).found
    assert source(code).splitlines()[found.decided.line - 1] == "    if step >= 5 + rank:"


WRITES = """\
STATE = "progress.pt"
def save(folder, step):
    if rank == 0:
        torch.save({"step": step}, os.path.join(folder, STATE))
"""


@pytest.mark.parametrize(
    "found",
    ["os.path.exists(os.path.join(folder, STATE))", 'not (Path(folder) / "progress.pt").is_file()'],
)
def test_a_file_that_the_program_writes_may_be_there_for_some_ranks_only(found: str, tmp_path: Path) -> None:
    code = f"def resume(folder):\n    if {found}:\n        dist.broadcast(torch.ones(1), 0)\nresume(sys.argv[1])\n"
    assert [kind for kind, _ in places(tmp_path, WRITES + code)] == ["broadcast"]
    assert places(tmp_path, code.replace("STATE", '"labels.txt"').replace("progress.pt", "labels.txt")) == []


def test_a_checkpoint_that_is_loaded_where_it_exists_parts_no_ranks(tmp_path: Path) -> None:
    code = """\
if os.path.exists(os.path.join("out", STATE)):
    state = torch.load(os.path.join("out", STATE), map_location="cpu")
    dist.barrier if state else None
model = DDP(torch.nn.Linear(2, 2))
dist.barrier()
"""
    assert places(tmp_path, WRITES + code) == []


def test_what_follows_a_place_where_one_rank_may_leave_is_compared(tmp_path: Path) -> None:
    code = """\
def work():
    if rank == 0:
        if len(sys.argv) > 2:
            return
        print("goes on")
    dist.barrier()
    if rank == 0:
        dist.all_reduce(torch.ones(1))
work()
"""
    assert {kind for kind, _ in places(tmp_path, code)} == {"barrier", "all_reduce"}


def test_the_name_of_an_attribute_or_of_an_entry_may_be_any_value(tmp_path: Path) -> None:
    code = "key = ()\nprint({}.get(key), getattr(rank, [], 1), getattr(rank, key, 1))\n"
    assert places(tmp_path, code) == []


def test_what_follows_a_long_function_of_another_file_is_evaluated(tmp_path: Path) -> None:
    steps = "".join(f"    x = x + {number}\n" for number in range(1000))
    (tmp_path / "long.py").write_text(f"import torch.distributed as dist\ndef work(x):\n{steps}    return x\n")
    text = source("from long import work\nwork(rank)\nif rank == 0:\n    dist.barrier()\n")
    found = divergences(Evaluated(ast.parse(text), tmp_path / "train.py", text, most_steps=2000))
    assert [each.first.kind for each in found.found] == ["barrier"]
    assert not found.complete


def test_an_object_of_one_of_two_classes_may_be_counted_through(tmp_path: Path) -> None:
    classes = "class First: ...\nclass Second: ...\nparts = First() if x else Second()\n"
    code = f"{classes}for number, part in enumerate(parts):\n    dist.barrier()\nif rank == 0:\n    dist.barrier()\n"
    assert [kind for kind, _ in places(tmp_path, code)] == ["barrier"]


def test_files_that_import_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import torch.distributed as dist\nfrom b import g\ndef f():\n    g()\n    dist.barrier()\n"
    )
    (tmp_path / "b.py").write_text("import a\nrank = 0\ndef g():\n    a.f()\n")
    assert [kind for kind, _ in places(tmp_path, "import a\nif rank == 0:\n    a.f()\n")] == ["barrier"]
