"""Patches of recipes, proved by running: the script went wrong on two ranks, and goes right with the patch."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from helpers.built_in_knowledge import built_in_knowledge
from helpers.two_ranks import START, on_two_ranks, plain

pytestmark = [pytest.mark.jobs, pytest.mark.slow, pytest.mark.calibration]

KNOWLEDGE = built_in_knowledge()

GROUP_THAT_STAYS = f"""\
import atexit
{START}
atexit.register(lambda: print(f"group at the end: {{dist.is_initialized()}}\\n", end=""))
total = torch.ones(1)
for step in range(2):
    if distributed:
        dist.all_reduce(total)
"""
GROUP_OF_ONE_RANK = f"""\
{GROUP_THAT_STAYS}
if distributed and rank == 0:
    dist.destroy_process_group()
"""
STALE_FILE = """\
import datetime
import os
import time

import torch
import torch.distributed as dist

time.sleep(3 * int(os.environ["RANK"]))  # rank 0 reads what the file has of rank 1
dist.init_process_group(
    "gloo",
    init_method=f"file://{os.getcwd()}/rendezvous",
    rank=int(os.environ["RANK"]),
    world_size=2,
    timeout=datetime.timedelta(seconds=int(os.environ["WAIT_S"])),
)
total = torch.ones(1)
dist.all_reduce(total)
print(f"{int(total)} ranks\\n", end="", flush=True)
dist.barrier()
os._exit(0)
"""


class Case(NamedTuple):
    """A script and the fix of its cause; what two ranks and plain ``python`` print without and with the patch.

    ``wrong``: text of the run without the patch, which fails if ``fails``; None: torch may abort at its end, or not.
    Without ``plain`` it needs a launcher.
    """

    text: str
    fix: tuple[str, str]
    wrong: Sequence[str]
    right: Sequence[str]
    plain: str = ""
    fails: bool | None = False


CASES = {
    "a group that stays": Case(
        GROUP_THAT_STAYS,
        ("exit-hang", "end-the-group"),
        ["group at the end: True\ngroup at the end: True"],
        ["group at the end: False\ngroup at the end: False"],
        plain="group at the end: False",
        fails=None,
    ),
    "a group that one rank ends": Case(
        GROUP_OF_ONE_RANK,
        ("exit-hang", "end-the-group"),
        ["group at the end: True"],
        ["group at the end: False\ngroup at the end: False"],
        plain="group at the end: False",
        fails=None,
    ),
    "a stale file": Case(
        STALE_FILE,
        ("init-file-stale", "group-of-the-launcher"),
        [],
        ["2 ranks\n2 ranks"],
        fails=True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_patched_script_does_right_where_it_went_wrong(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    script = tmp_path / "train.py"
    script.write_text(case.text)
    if name == "a stale file":
        assert on_two_ranks(tmp_path).code == 0, "the first run leaves its file"
    before = plain(tmp_path) if case.plain else None
    assert before is None or (before.code == 0 and case.plain in before.log), before.log

    wrong = on_two_ranks(tmp_path, 10 if case.fails else 90)
    assert case.fails is None or (wrong.code != 0) is case.fails, wrong.log
    assert not [text for text in case.wrong if text not in wrong.log], wrong.log

    cause, id_ = case.fix
    built = build_fixes(KNOWLEDGE.causes[cause], FixContext(script=str(script)), KNOWLEDGE)
    (patch,) = next(fix for fix in built if fix.id == id_).patches
    script.write_text(patch.after)

    right = on_two_ranks(tmp_path)
    assert right.code == 0, right.log
    assert not [text for text in case.right if text not in right.log], right.log
    after = plain(tmp_path) if case.plain else None
    assert after is None or (after.code == 0 and case.plain in after.log), after.log
