"""DW441: pieces of a batch that are sent in rounds, into buffers for as many rows in each round."""

import pytest
from helpers.review_snippets import lines

STAGES = """
from torch import nn
dist.init_process_group("gloo")
def first(data, size):
    layer = nn.Linear(4, 8)
    SENDS
def last(total, size):
    for start in range(0, total, size):
        RECEIVES
if dist.get_rank() == 0:
    first(torch.randn(ROWS, 4), 4)
elif dist.get_rank() == 1:
    last(ROWS, 4)
dist.barrier()
"""
SENDS = {
    "of what a layer makes": "for chunk in data.split(size):\n        dist.send(layer(chunk).contiguous(), dst=1)",
    "with their numbers": "for place, chunk in enumerate(data.split(size)):\n        dist.send(layer(chunk), dst=1)",
    "as they are": "for chunk in torch.split(data, size):\n        dist.send(chunk.repeat(1, 2), dst=1)",
    "by a slice": "for at in range(0, len(data), size):\n        dist.send(layer(data[at:at + size]).relu(), dst=1)",
}
KNOWN = ("of what a layer makes", "with their numbers", "by a slice")
WHOLE = "rows = torch.empty(size, 8)\n        dist.recv(rows, src=0)"
FITS = "rows = torch.empty(min(size, total - start), 8)\n        dist.recv(rows, src=0)"
FLAT = "rows = torch.empty(32)\n        dist.recv(rows, src=0)"


def program(sends: str, receives: str, rows: int) -> str:
    return STAGES.replace("SENDS", SENDS[sends]).replace("RECEIVES", receives).replace("ROWS", str(rows))


@pytest.mark.parametrize("sends", KNOWN)
def test_the_last_piece_has_fewer_rows(sends: str) -> None:
    assert lines(program(sends, WHOLE, 10), "DW441") == ["dist.recv(rows, src=0)"]


@pytest.mark.parametrize("sends", SENDS)
@pytest.mark.parametrize(("receives", "rows"), ((WHOLE, 12), (FITS, 10), (FLAT, 12)))
def test_a_buffer_that_fits_each_piece_is_not(sends: str, receives: str, rows: int) -> None:
    assert lines(program(sends, receives, rows), "DW441") == []
