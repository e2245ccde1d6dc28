"""Rows that torch keeps, names under which ranks keep their data, and weights that no rank draws for itself."""

import textwrap

import pytest
from helpers.review_snippets import found, lines

START = """
import json
from torch import nn
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
ROWS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.body(x))
def collect(rows):
    parts = [torch.zeros_like(rows) for _ in range(world)]
    dist.all_gather(parts, rows)
    return torch.cat(parts)
data = torch.randn({}, 6)
mine = data[rank::world]
net, layer, words = Net(), nn.Linear(6, 3), nn.Embedding(9, 4)
{}
"""
GATHERED = "dist.all_gather(parts, rows)"
OF_ROWS = {
    "places of the largest": "collect(layer(mine).argmax(1))",
    "of a model of the program": "with torch.no_grad():\n    found = net(mine)\ncollect(found.softmax(dim=-1))",
    "means of the rows": "collect(mine.mean(1))",
    "of an embedding": "collect(words(mine))",
    "by a function": "def scores(model, x):\n    return model(x).amax(1)\ncollect(scores(layer, mine))",
}
SAME_ROWS = {
    "equal parts": (8, "collect(layer(mine).argmax(1))"),
    "one number": (9, "collect(layer(mine).mean())"),
    "one number for each column": (9, "collect(layer(mine).mean(0))"),
    "all rows": (9, "collect(layer(data).argmax(1))"),
    "rows by another model": (9, "collect(layer(mine).argmax(1)[:2])"),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_of_unequal_parts_are_gathered(name: str) -> None:
    assert lines(START + ROWS.format(9, OF_ROWS[name]), "DW427") == [GATHERED]


@pytest.mark.parametrize("name", SAME_ROWS)
def test_rows_of_equal_parts_may_be_gathered(name: str) -> None:
    rows, code = SAME_ROWS[name]
    assert lines(START + ROWS.format(rows, code), "DW427") == []


FILLED = """
data = list(range(10))
answers = {}
%s
def write(path, held):
    with open(path, "w") as file:
        json.dump(held, file)
%s
"""
WRITE, OPENED = 'write("answers.json", answers)', 'with open(path, "w") as file:'
OWN_NAMES = {
    "by places of a rank": "for place in range(rank, len(data), world):\n    answers[f'q{place}'] = 1",
    "by the rank": "answers[f'rank {rank}'] = {'done': True}",
    "by a place in a part": "for place in range(5):\n    answers[str(rank * 5 + place)] = 'yes'",
}
SAME_NAMES = {
    "by places of all": "for place in range(len(data)):\n    answers[f'q{place}'] = 1",
    "by numbers": "for place in range(world):\n    answers[f'rank {place}'] = 0",
}


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_file_of_all_ranks_loses_names_of_each_rank(name: str) -> None:
    assert lines(START + FILLED % (OWN_NAMES[name], WRITE), "DW412") == [OPENED]
    assert lines(START + FILLED % (OWN_NAMES[name], f"if rank == 0:\n    {WRITE}"), "DW412") == []
    assert lines(START + FILLED % (OWN_NAMES[name], WRITE.replace('"answers', 'f"answers{rank}')), "DW412") == []


@pytest.mark.parametrize("name", SAME_NAMES)
def test_names_of_all_ranks_are_no_loss(name: str) -> None:
    (finding,) = found(START + FILLED % (SAME_NAMES[name], WRITE), "DW412")
    assert finding.severity == "info"


LOSSES = """
def losses(batch):
    kept = {}
    for kind, value in batch:
        %s
    return kept
def reduce(kept):
    names = %s
    values = %s
    dist.all_reduce(values)
    return dict(zip(names, values.tolist()))
batches = %s
reduced = reduce(losses(batches[rank]))
"""
ADDS = {
    "by a default": "kept.setdefault(kind, torch.zeros(()))\n        kept[kind] = kept[kind] + value",
    "by get": "kept[kind] = kept.get(kind, torch.zeros(())) + value",
    "by a member": "if kind in kept:\n            kept[kind] += value\n        else:\n            "
    "kept[kind] = torch.zeros(()) + value",
    "by a question": "if kind not in kept:\n            kept[kind] = torch.zeros(())\n        kept[kind] += value",
}
STACKED = "torch.stack([kept[name] for name in names])"
SWAPPED = '{0: [("box", 1.0), ("cls", 4.0)], 1: [("cls", 8.0), ("box", 2.0), ("cls", 1.0)]}'
FEWER = '{0: [("box", 1.0), ("cls", 4.0)], 1: [("cls", 8.0)]}'
REDUCED = "dist.all_reduce(values)"


@pytest.mark.parametrize("adds", ADDS)
def test_values_in_the_order_of_the_data_are_mixed_up(adds: str) -> None:
    for names, values in (("list(kept)", "torch.stack(list(kept.values()))"), ("list(kept.keys())", STACKED)):
        code = START + LOSSES % (ADDS[adds], names, values, SWAPPED)
        assert lines(code, "DW443") == [REDUCED]
        assert lines(code, "DW427") == []


@pytest.mark.parametrize("adds", ADDS)
def test_values_in_the_order_of_their_names_fit(adds: str) -> None:
    for rule in ("DW443", "DW427", "DW405"):
        assert lines(START + LOSSES % (ADDS[adds], "sorted(kept)", STACKED, SWAPPED), rule) == []


def test_a_name_that_one_rank_does_not_have_changes_the_size() -> None:
    assert lines(START + LOSSES % (ADDS["by get"], "sorted(kept)", STACKED, FEWER), "DW427") == [REDUCED]


def test_collectives_for_names_in_order_meet() -> None:
    loop = "def reduce(kept):\n    for name in %s:\n        dist.all_reduce(kept[name])\n    return kept\n"
    before, after = (LOSSES % (ADDS["by get"], "", "", SWAPPED)).split("def reduce")
    after = "batches" + after.partition("batches")[2]
    assert lines(START + before + loop % "sorted(kept)" + after, "DW405") == []
    assert lines(START + before + loop % "kept" + after, "DW443") == ["dist.all_reduce(kept[name])"]


SHARDED = """
class Column(nn.Module):
    def __init__(self, size):
        super().__init__()
        WEIGHT
        self.bias = nn.Parameter(torch.zeros(1))
    def forward(self, x):
        return x @ self.part.t() + self.bias
net = Column(6)
rate = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    rate.zero_grad()
    net(torch.randn(4, 6)).sum().backward()
    dist.all_reduce(net.bias.grad)
    net.bias.grad /= world
    rate.step()
"""
GENERATOR = "generator=torch.Generator().manual_seed(0)"


def of_weight(code: str) -> list[str]:
    return lines(START + SHARDED.replace("WEIGHT", textwrap.indent(code, " " * 8).strip()), "DW206")


@pytest.mark.parametrize(
    "code",
    (
        f"self.part = nn.Parameter(torch.randn(size, size, {GENERATOR}).chunk(world)[rank].clone())",
        "self.part = nn.Parameter(torch.zeros(size, size))",
        "self.part = nn.Parameter(torch.linspace(0, 1, size * size).view(size, size))",
        f"full = torch.rand(size, size, {GENERATOR})\nself.part = nn.Parameter(full)",
    ),
)
def test_weights_without_own_random_numbers_are_alike(code: str) -> None:
    assert of_weight(code) == []


@pytest.mark.parametrize(
    "code",
    (
        "self.part = nn.Parameter(torch.randn(size, size))",
        "self.part = nn.Parameter(torch.empty(size, size))\nnn.init.xavier_uniform_(self.part)",
        "self.part = nn.Linear(size, size).weight",
    ),
)
def test_weights_of_random_numbers_of_each_rank_differ(code: str) -> None:
    assert of_weight(code) == ["net = Column(6)"]


PRODUCTS = {
    "columns with columns": "mine.t() @ mine",
    "their sums": "(mine.t() @ mine).sum(1)",
    "a row of columns": "torch.ones(9)[rank::world] @ mine",
    "columns with a part": "(mine.transpose(0, 1) @ torch.ones(9)[rank::world]).abs()",
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_over_the_rows_has_as_many_elements_on_all_ranks(name: str) -> None:
    code = START + ROWS.format(9, f"total = {PRODUCTS[name]}\ndist.all_reduce(total)\nprint(total)")
    assert lines(code, "DW427") == []


def test_a_product_for_each_row_has_another_size() -> None:
    code = START + ROWS.format(9, "total = (mine @ torch.ones(6, 2)).sum(1)\ndist.all_reduce(total)\nprint(total)")
    assert lines(code, "DW427") == ["dist.all_reduce(total)"]
