"""Files of other ranks that are read or listed early, names made of times, and log files that each rank empties."""

from pathlib import Path

import pytest
from ddpwizard.app.review.file_review import review_file
from helpers.review_snippets import IMPORTS, KNOWLEDGE, found, lines

START = """
import datetime
import glob
import json
import logging
import time
from pathlib import Path
import torch.distributed.checkpoint as dcp
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
WAIT = "dist.barrier()\n"
WRITTEN = {
    "by a number in a text": ('torch.save(1, f"out/part_{rank}.pt")\n', 'torch.load(f"out/part_{each}.pt")'),
    "by a join": (
        'torch.save(1, os.path.join("out", "part%d.pt" % rank))\n',
        'torch.load(os.path.join("out", "part%d.pt" % each))',
    ),
    "by paths": ('torch.save(1, Path("out") / f"part_{rank}.pt")\n', 'torch.load(Path("out") / f"part_{each}.pt")'),
    "by a sum of texts": ('torch.save(1, "part" + str(rank) + ".pt")\n', 'torch.load("part" + str(each) + ".pt")'),
    "in a file of texts": (
        'json.dump([], open(f"part_{rank}.json", "w"))\n',
        'json.load(open(f"part_{each}.json"))',
    ),
}
LISTED = {
    "a pattern": 'glob.glob("out/*.pt")',
    "a pattern of a path": 'Path("out").glob("part_*.pt")',
    "a directory": 'os.listdir("out")',
}


@pytest.mark.parametrize(("write", "read"), WRITTEN.values(), ids=WRITTEN.keys())
def test_files_of_other_ranks_that_are_read_early_are_found(write: str, read: str) -> None:
    merge = f"if rank == 0:\n    parts = [{read} for each in range(dist.get_world_size())]\n"
    assert len(lines(START + write + merge, "DW505")) == 1
    assert lines(START + write + WAIT + merge, "DW505") == []


def test_a_file_of_the_own_rank_is_not() -> None:
    code = 'torch.save(1, f"part_{rank}.pt")\ntorch.load(f"part_{rank}.pt")\n'
    assert lines(START + code, "DW505") == []


def test_another_file_in_the_same_directory_is_not() -> None:
    code = 'torch.save(1, f"out/part_{rank}.pt")\nfor each in range(2):\n    torch.load(f"out/input_{each}.pt")\n'
    assert lines(START + code, "DW505") == []


@pytest.mark.parametrize("listing", LISTED.values(), ids=LISTED.keys())
def test_a_listing_of_what_ranks_have_just_written_is_found(listing: str) -> None:
    write = 'torch.save(1, f"out/part_{rank}.pt")\n'
    merge = f"if rank == 0:\n    print([*{listing}])\n"
    assert len(lines(START + write + merge, "DW505")) == 1
    assert lines(START + write + WAIT + merge, "DW505") == []


def test_a_listing_of_what_one_rank_has_just_written_is_found_on_the_others() -> None:
    write = 'for step in range(3):\n    if rank == 0:\n        torch.save(1, f"out/{step}.pt")\n'
    every = 'print(sorted(glob.glob("out/*.pt"))[-1])\n'
    assert len(lines(START + write + every, "DW505")) == 1
    assert lines(START + write + WAIT + every, "DW505") == []
    assert lines(START + write + f"if rank == 0:\n    {every}", "DW505") == []
    assert lines(START + write + every.replace("out/", "in/"), "DW505") == []


NAMED = {
    "a date": 'name = datetime.datetime.now().strftime("%H%M%S")\n',
    "a time": 'name = time.strftime("%H%M%S")\n',
    "in a text": 'name = f"run-{datetime.datetime.now():%H%M%S}"\n',
}
USED = """
folder = os.path.join("runs", name)
if rank == 0:
    os.makedirs(folder)
dist.barrier()
torch.save(1, os.path.join(folder, f"{rank}.pt"))
"""


@pytest.mark.parametrize("named", NAMED.values(), ids=NAMED.keys())
def test_a_directory_that_each_rank_names_by_its_time_is_found(named: str) -> None:
    assert lines(START + named + USED, "DW507") == [named.strip()]


def test_a_name_that_one_rank_sends_is_not() -> None:
    sent = "box = [time.strftime('%H')]\ndist.broadcast_object_list(box, src=0)\nname = box[0]\n"
    assert lines(START + sent + USED, "DW507") == []


def test_a_name_that_only_one_rank_uses_is_not() -> None:
    code = NAMED["a time"] + USED.replace('torch.save(1, os.path.join(folder, f"{rank}.pt"))', "print(folder)")
    assert lines(START + code, "DW507") == []


def test_a_checkpoint_of_all_ranks_under_a_time_is_found() -> None:
    save = 'dcp.save({"step": 1}, checkpoint_id=f"runs/{time.strftime(\'%H%M%S\')}")\n'
    assert lines(START + save, "DW507")
    assert lines(START + 'dcp.save({"step": 1}, checkpoint_id="runs/last")\n', "DW507") == []


def test_a_log_file_that_each_rank_empties_is_found() -> None:
    code = 'logging.basicConfig(filename="train.log"{})\nlogging.info("begins")\n'
    assert lines(START + code.format(', filemode="w"'), "DW412")
    own = code.format(', filemode="w"').replace('"train.log"', 'f"train{rank}.log"')
    assert lines(START + own, "DW412") == []
    assert lines(START + code.format(""), "DW412") == []
    handler = 'logging.getLogger().addHandler(logging.FileHandler("train.log", mode="w"))\n'
    assert lines(START + handler, "DW412")
    assert lines(START + f"if rank == 0:\n    {handler}", "DW412") == []


UNIQUE = {
    "a random name": "name = uuid.uuid4().hex\n",
    "a part of one": 'name = f"run-{uuid.uuid4().hex[:8]}"\n',
    "random bytes": "name = secrets.token_hex(4)\n",
}


@pytest.mark.parametrize("named", UNIQUE.values(), ids=UNIQUE.keys())
def test_a_directory_that_each_rank_names_by_chance_is_found(named: str) -> None:
    imports = "import secrets\nimport uuid\n"
    assert lines(START + imports + named + USED, "DW507") == [named.strip()]


def test_files_in_a_temporary_directory_of_each_rank_are_not_those_of_the_others() -> None:
    code = """
import tempfile
folder = tempfile.mkdtemp()
torch.save(1, os.path.join(folder, f"{rank}.pt"))
dist.barrier()
if rank == 0:
    parts = [torch.load(os.path.join(folder, f"{each}.pt")) for each in range(dist.get_world_size())]
"""
    assert lines(START + code, "DW507") == ["folder = tempfile.mkdtemp()"]
    own = code.replace("{each}", "{rank}").replace(" for each in range(dist.get_world_size())", "")
    assert lines(START + own, "DW507") == []


FOLDER_OF_EACH = """
import uuid
def new_folder(root):
    folder = os.path.join(root, "run-" + {})
    os.makedirs(folder, exist_ok=True)
    return folder
folder = new_folder("runs")
torch.save(1, {})
"""
OWN, NUMBERED = "uuid.uuid4().hex[:6]", 'os.path.join(folder, f"part_{rank}.pt")'
NAMES_OF_EACH = {"by chance": OWN, "a time": 'time.strftime("%H%M%S")', "both": f'time.strftime("%H%M%S") + {OWN}'}


@pytest.mark.parametrize("name", NAMES_OF_EACH.values(), ids=NAMES_OF_EACH.keys())
def test_parts_of_all_ranks_in_a_directory_of_each_are_found(name: str) -> None:
    assert len(found(START + FOLDER_OF_EACH.format(name, NUMBERED), "DW507")) == 1


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ('"last"', NUMBERED),
        (f"str(rank) + {OWN}", 'os.path.join(folder, "part.pt")'),
        (OWN, 'os.path.join("parts", f"{rank}.pt")'),
    ],
)
def test_directories_of_one_name_or_of_each_rank_are_not(name: str, path: str) -> None:
    assert lines(START + FOLDER_OF_EACH.format(name, path), "DW507") == []


def test_a_directory_of_each_rank_that_it_removes_is_not() -> None:
    code = "import shutil\n" + FOLDER_OF_EACH.format(OWN, NUMBERED) + "shutil.rmtree(folder)\n"
    assert lines(START + code, "DW507") == []


def test_a_directory_that_a_function_of_another_module_names(tmp_path: Path) -> None:
    helper, script = FOLDER_OF_EACH.format(OWN, NUMBERED).split("folder = new")
    (tmp_path / "places.py").write_text(f"import os\n{helper}")
    (tmp_path / "train.py").write_text(IMPORTS + START + f"from places import new_folder\nfolder = new{script}")
    (finding,) = [each for each in review_file(tmp_path / "train.py", KNOWLEDGE) if each.rule == "DW507"]
    assert [(Path(each.path).name, each.line) for each in finding.related][-1] == ("places.py", 5)


HISTORY = """
class History({base}):
    def note(self, value):
        self["loss"] = value
history = History()
history.note(1)
with open("history.json", "w") as file:
    json.dump({dumped}, file)
"""


def test_an_object_that_may_hold_what_each_rank_has_seen_is_not_alike() -> None:
    (loses,) = found(START + HISTORY.format(base="dict", dumped="history"), "DW412")
    assert loses.severity == "warning"
    (alike,) = found(START + HISTORY.format(base="dict", dumped="[1, 2]"), "DW412")
    assert alike.severity == "info"
