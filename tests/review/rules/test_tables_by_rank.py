"""Numbers, bounds and names that a rank takes from a table that is written out, with tables that are alike for all."""

import pytest
from helpers.review_snippets import found, lines

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
TRAINED = (
    START
    + """
TABLE
def read(name):
    count = COUNT
    x = torch.randn(count, 5)
    return TensorDataset(x, x.sum(1))
model = DDP(nn.Linear(5, 1))
for x, y in DataLoader(read(CHOSEN), batch_size=4):
    (model(x).squeeze(1) - y).square().mean().backward()
"""
)
AVERAGED = (
    START
    + """
def share(right, wrong):
    return (right == wrong).float().mean()
bounds = TABLE
first, last = bounds[rank]
held = torch.arange(12)
result = share(held[first:last], 3)
dist.all_reduce(result)
result /= dist.get_world_size()
"""
)


def trained(table: str, count: str, chosen: str) -> str:
    """Return a program in which each rank trains on as many rows as a table says."""
    return TRAINED.replace("TABLE", table).replace("COUNT", count).replace("CHOSEN", chosen)


UNEQUAL = {
    "a name of a sorted mapping": trained("ROWS = {'a': 40, 'b': 24}", "ROWS[name]", "sorted(ROWS)[rank]"),
    "a name of a list": trained("ROWS, NAMES = {'b': 40, 'a': 24}, ['b', 'a']", "ROWS[name]", "NAMES[rank]"),
    "a name of a mapping in its order": trained("ROWS = {'b': 40, 'a': 24}", "ROWS[name]", "list(ROWS)[rank]"),
    "a sorted list": trained("ROWS = sorted([40, 24, 24])", "name", "ROWS[rank + 1]"),
    "a column of a list of rows": trained("ROWS = [('x', 40), ('y', 24)]", "name", "ROWS[rank][1]"),
    "a column of a mapping": trained("ROWS = {0: (8, 40), 1: (8, 24)}", "name", "ROWS[rank][-1]"),
    "a list of a table": trained("ROWS = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2]]", "len(name)", "ROWS[rank]"),
}
EQUAL = {
    "a name of a sorted mapping": trained("ROWS = {'a': 40, 'b': 40}", "ROWS[name]", "sorted(ROWS)[rank]"),
    "a name of a mapping whose order is another one": trained(
        "ROWS = {'c': 24, 'a': 40, 'b': 40}", "ROWS[name]", "sorted(ROWS)[rank]"
    ),
    "a sorted list": trained("ROWS = sorted([24, 40, 24])", "name", "ROWS[rank]"),
    "the first column, alike in all rows": trained("ROWS = {0: (8, 40), 1: (8, 24)}", "name", "ROWS[rank][0]"),
    "as many batches of unequal rows": trained("ROWS = [('x', 40), ('y', 39)]", "name", "ROWS[rank][1]"),
    "the rows of one name": trained("ROWS = {'a': 40, 'b': 24}", "ROWS[name]", "sorted(ROWS)[0]"),
}


@pytest.mark.parametrize("code", UNEQUAL.values(), ids=UNEQUAL)
def test_rounds_by_a_table_that_differ(code: str) -> None:
    assert lines(code, "DW217")[0].startswith("for x, y in DataLoader(")


@pytest.mark.parametrize("code", EQUAL.values(), ids=EQUAL)
def test_rounds_by_a_table_that_are_alike(code: str) -> None:
    assert found(code, "DW217") == []


@pytest.mark.parametrize(
    ("table", "count"),
    [
        ("[(0, 8), (8, 12)]", 1),
        ("{0: (0, 9), 1: (9, 12)}", 1),
        ("[[0, 3], [3, 12]]", 1),
        ("[(0, 6), (6, 12)]", 0),
        ("{0: (0, 4), 1: (8, 12)}", 0),
        ("[(0, 8), (0, 8)]", 0),
        ("torch.load('bounds.pt')", 0),
    ],
)
def test_mean_of_a_part_between_bounds_of_a_table(table: str, count: int) -> None:
    assert len(found(AVERAGED.replace("TABLE", table), "DW429")) == count


def test_column_of_a_row_that_get_gives() -> None:
    chosen = "ROWS = {'a': (40, 1), 'b': (24, 1)}\nbatches = ROWS.get(input(), (8, 1))[0]\n"
    code = chosen + "if dist.get_rank() == 0:\n    dist.barrier()\nprint(batches)\n"
    assert len(found(code, "DW401")) == 1
