"""DW478: ranks that a program asks for before the process group is made."""

from pathlib import Path

import pytest
from ddpwizard.app.review.review import review_text
from helpers.built_in_knowledge import built_in_knowledge
from helpers.review_snippets import lines, script

HELPERS = """
import time
import urllib.request
def get_rank():
    HELPER
def is_main():
    return get_rank() == 0
def fetch(path):
    if FETCHES:
        urllib.request.urlretrieve("https://example.org/data.zip", path)
def main():
    BEFORE
    dist.init_process_group("gloo")
    AFTER
main()
"""
ANSWERS = {
    "at once": "return dist.get_rank() if dist.is_initialized() else 0",
    "early": "if not dist.is_initialized():\n        return 0\n    return dist.get_rank()",
    "late": "if dist.is_available() and dist.is_initialized():\n        return dist.get_rank()\n    return 0",
}
KNOWS = {
    "of the launcher": 'return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", 0))',
    "of none": "return dist.get_rank()",
}


def program(before: str, after: str = "pass", helper: str = "at once", fetches: str = "is_main()") -> str:
    code = HELPERS.replace("HELPER", (ANSWERS | KNOWS)[helper]).replace("FETCHES", fetches)
    return code.replace("BEFORE", before).replace("AFTER", after)


@pytest.mark.parametrize("helper", ANSWERS)
def test_a_rank_that_decides_before_the_group_is_found(helper: str) -> None:
    assert lines(program('fetch("data.zip")', helper=helper), "DW478") == ["if is_main():"]
    assert lines(program('fetch("data.zip")', helper=helper, fetches="get_rank() == 0"), "DW478") == [
        "if get_rank() == 0:"
    ]
    for after in ('if rank == 0:\n        torch.save({}, "last.pt")', "torch.manual_seed(rank)"):
        assert lines(program("rank = get_rank()", after, helper), "DW478") == ["rank = get_rank()"]


def test_a_file_that_is_written_before_the_group_is_found() -> None:
    before = 'if is_main():\n        with open("run.json", "w") as file:\n            file.write("{}")'
    assert lines(program(before), "DW478") == ["if is_main():"]
    assert lines(program('if get_rank() == 0:\n        os.remove("old.pt")'), "DW478") == ["if get_rank() == 0:"]


SILENT = {
    "behind the group": program("pass", 'fetch("data.zip")'),
    "the rank of the launcher": program('fetch("data.zip")', helper="of the launcher"),
    "a report": program('if is_main():\n        print("begins")'),
    "a directory that may exist": program('if is_main():\n        os.makedirs("runs", exist_ok=True)'),
    "asked again": program("rank = get_rank()", "rank = get_rank()\n    torch.manual_seed(rank)"),
    "read before only": program("rank = get_rank()\n    print(rank)"),
    "a group that may be there": program(
        'fetch("data.zip")\n    if dist.is_initialized():\n        return', 'fetch("more.zip")'
    ),
    "no group": program('fetch("data.zip")').replace('dist.init_process_group("gloo")', "pass"),
    "another library makes the group": program('import deepspeed\n    deepspeed.init_distributed()\n    fetch("a")'),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_every_rank_may_do_before_the_group_is_not(name: str) -> None:
    assert lines(SILENT[name], "DW478") == []


@pytest.mark.parametrize(("helper", "number"), (("at once", 1), ("of the launcher", 0)))
def test_a_helper_of_another_file_is_read(helper: str, number: int, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(script("def get_rank():\n    " + (ANSWERS | KNOWS)[helper] + "\n"))
    code = script(
        'from ranks import get_rank\nif get_rank() == 0:\n    torch.save({}, "first.pt")\n'
        'dist.init_process_group("gloo")\ndist.barrier()\n'
    )
    path = tmp_path / "train.py"
    path.write_text(code)
    assert len(review_text(code, str(path), built_in_knowledge(), ["DW478"])) == number
