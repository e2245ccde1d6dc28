"""DW505: files that one rank moves, copies or deletes while the others read them."""

import pytest
from helpers.review_snippets import apply_fixes, lines, script

START = """
import shutil
from pathlib import Path
dist.init_process_group("gloo")
rank = dist.get_rank()
path = Path("cache.pt")
"""
LOAD = 'x = torch.load("cache.pt")'
MOVES = [
    'os.rename("cache.tmp", "cache.pt")',
    'os.replace("cache.tmp", "cache.pt")',
    'shutil.move("cache.tmp", "cache.pt")',
    'shutil.copyfile("cache.tmp", dst="cache.pt")',
]
TAKEN = ['os.remove("cache.pt")', 'os.rename("cache.pt", "old.pt")', "path.unlink()"]


@pytest.mark.parametrize("move", MOVES)
def test_file_that_rank_0_moves_into_place(move: str) -> None:
    code = f"{START}if rank == 0:\n    {move}\n"
    assert lines(code + LOAD, "DW505") == [LOAD]
    assert lines(f"{code}dist.barrier()\n{LOAD}", "DW505") == []
    after, _ = apply_fixes(script(code + LOAD), ["DW505"])
    assert after.index("barrier()") < after.index(LOAD)


@pytest.mark.parametrize("take", TAKEN)
def test_file_that_rank_0_takes_away_while_others_read(take: str) -> None:
    read = "x = path.read_bytes()" if "path" in take else LOAD
    code = f"{START}{read}\n"
    assert lines(f"{code}if rank == 0:\n    {take}\n", "DW505") == [take]
    assert lines(f"{code}dist.barrier()\nif rank == 0:\n    {take}\n", "DW505") == []
    assert lines(f'{START}if rank == 0:\n    y = torch.load("cache.pt")\n    {take}\n', "DW505") == []


def test_no_patch_leaves_the_load_without_a_wait() -> None:
    code = (
        START
        + 'torch.save(torch.ones(3), "cache.tmp")\ndist.barrier()\nos.rename("cache.tmp", "cache.pt")\n'
        + LOAD
        + "\n"
    )
    after, _ = apply_fixes(script(code))
    assert lines(after.removeprefix(script("")), "DW505") == []


DELETED = """
import shutil
from pathlib import Path
dist.init_process_group("nccl")
rank = dist.get_rank()
folder = Path("results")
{}
"""
MADE_TOO_EARLY = {
    "a path": "if rank == 0:\n    shutil.rmtree(folder)\nfolder.mkdir(exist_ok=True)",
    "a text of it": "if rank == 0 and folder.exists():\n    shutil.rmtree(str(folder))\n"
    "os.makedirs(folder, exist_ok=True)",
    "below it": "if rank == 0:\n    shutil.rmtree(folder)\nos.makedirs(folder / 'logs', exist_ok=True)",
}
MADE_IN_TIME = {
    "behind a barrier": "if rank == 0:\n    shutil.rmtree(folder)\ndist.barrier()\nfolder.mkdir(exist_ok=True)",
    "by the same rank": "if rank == 0:\n    shutil.rmtree(folder)\n    folder.mkdir(exist_ok=True)",
    "another one": "if rank == 0:\n    shutil.rmtree(folder)\nPath('others').mkdir(exist_ok=True)",
}


@pytest.mark.parametrize("code", MADE_TOO_EARLY.values(), ids=MADE_TOO_EARLY.keys())
def test_a_directory_that_is_made_while_it_is_deleted_is_found(code: str) -> None:
    (line,) = lines(DELETED.format(code), "DW505")
    assert "mkdir" in line or "makedirs" in line


@pytest.mark.parametrize("code", MADE_IN_TIME.values(), ids=MADE_IN_TIME.keys())
def test_a_directory_that_waits_for_its_deletion_is_not(code: str) -> None:
    assert lines(DELETED.format(code), "DW505") == []
