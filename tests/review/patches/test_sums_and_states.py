"""Patches of means of means, of biases in a sum, of whole states and of appended files, and places that have none."""

import pytest
from helpers.review_snippets import found, refused, repaired

START = """\
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
"""
MEAN = """\
def mean_of(values):
    total, count = 0.0, 0
    for value in values:
        total += value.item()
        count += 1
    {}
print(mean_of(torch.arange(8.0)[:6] if rank == 0 else torch.arange(8.0)[6:]))
"""
SPLIT = """\
class Split(nn.Module):
    def __init__(self, full):
        super().__init__()
        part = full.in_features // world
        self.weight = nn.Parameter(full.weight[:, rank * part : (rank + 1) * part].clone())
        self.bias = nn.Parameter(full.bias.clone())

    def forward(self, x):
        {}
        return y

Split(nn.Linear(8, 4))(torch.ones(2, 4))
"""
STATE = """\
model = nn.Linear(8, 8)
fully_shard(model)
state = torch.load("whole.pt")
{}
"""
ROWS = "for epoch in range(3):\n    {}\n"
GUARD = "if not dist.is_initialized() or dist.get_rank() == 0:"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "mean = torch.tensor(total / count)\n    dist.all_reduce(mean)\n    return mean.item() / world",
            "mean = torch.tensor([total, count])\n    dist.all_reduce(mean)\n    mean = mean[0] / mean[1]\n"
            "    return mean.item()",
        ),
        (
            "m = torch.as_tensor([total / count], dtype=torch.float64)\n    if world > 1:\n"
            "        dist.all_reduce(m, op=dist.ReduceOp.SUM)\n        m /= world\n    return float(m)",
            "m = torch.as_tensor([total, count], dtype=torch.float64)\n    if world > 1:\n"
            "        dist.all_reduce(m, op=dist.ReduceOp.SUM)\n    m = m[:1] / m[1:]\n    return float(m)",
        ),
        (
            "mean = torch.tensor(total / count)\n    dist.all_reduce(mean, op=dist.ReduceOp.AVG)\n"
            "    return mean.item()",
            "mean = torch.tensor([total, count])\n    dist.all_reduce(mean, op=dist.ReduceOp.AVG)\n"
            "    mean = mean[0] / mean[1]\n    return mean.item()",
        ),
    ],
)  # fmt: skip
def test_sum_and_number_are_reduced(before: str, after: str) -> None:
    assert repaired(START + MEAN.format(before), "DW429") == START + MEAN.format(after)


@pytest.mark.parametrize(
    "code",
    [
        "mean = torch.tensor(total / count)\n    print(mean)\n"
        "    dist.all_reduce(mean)\n    return mean.item() / world",
        "mean = torch.tensor(total / count)\n    if world > 1:\n        dist.all_reduce(mean)\n        print(mean)\n"
        "        mean /= world\n    return mean",
        "own = total / count\n    mean = torch.tensor(own)\n    dist.all_reduce(mean)\n    return mean.item() / world",
        "mean = torch.tensor(total / count)\n    dist.all_reduce(mean)\n"
        "    print(mean / world)\n    return mean / world",
    ],
    ids=["read before", "read inside", "a name for the quotient", "divided twice"],
)  # fmt: skip
def test_means_that_are_read_in_between_have_no_patch(code: str) -> None:
    refused(START + MEAN.format(code), "DW429")


@pytest.mark.parametrize("bias", ["self.bias", "bias=self.bias"])
def test_bias_is_added_to_the_sum(bias: str) -> None:
    before = f"y = F.linear(x, self.weight, {bias})\n        dist.all_reduce(y)"
    after = "y = F.linear(x, self.weight)\n        dist.all_reduce(y)\n        y = y + self.bias"
    assert repaired(START + SPLIT.format(before), "DW438") == START + SPLIT.format(after)


@pytest.mark.parametrize(
    "code",
    [
        "y = F.linear(x, self.weight, self.bias)\n        print(y)\n        dist.all_reduce(y)",
        "y = F.linear(x, self.weight, self.bias)\n        if world > 1:\n            dist.all_reduce(y)",
    ],
)
def test_products_that_are_read_or_not_always_summed_have_no_patch(code: str) -> None:
    refused(START + SPLIT.format(code), "DW438")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("model.load_state_dict(state)", "full_state_dict=True"),
        ('model.load_state_dict(state["model"], strict=False)', "full_state_dict=True, strict=False"),
        ("model.load_state_dict(state_dict=state)", "full_state_dict=True"),
    ],
)
def test_whole_state_is_loaded_into_shards(before: str, after: str) -> None:
    given = 'state["model"]' if "[" in before else "state"
    call = f"set_model_state_dict(model, {given}, options=StateDictOptions({after}))"
    imported = "from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict\n"
    expected = imported + "import os\nimport torch\nimport torch.distributed as dist\n" + START + STATE.format(call)
    assert repaired(START + STATE.format(before), "DW305") == expected


@pytest.mark.parametrize(
    "code",
    [
        "missing = model.load_state_dict(state)",
        "model.load_state_dict(state, False)",
        "set_model_state_dict = None\nmodel.load_state_dict(state)",
    ],
)
def test_loads_with_a_result_or_other_arguments_have_no_patch(code: str) -> None:
    refused(START + STATE.format(code), "DW305")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            'with open("rows.csv", "a") as file:\n        file.write(f"{epoch}\\n")',
            f'{GUARD}\n        with open("rows.csv", "a") as file:\n            file.write(f"{{epoch}}\\n")',
        ),
        (
            'print(epoch, file=open("rows.csv", mode="a"))',
            f'{GUARD}\n        print(epoch, file=open("rows.csv", mode="a"))',
        ),
    ],
)  # fmt: skip
def test_rank_0_appends(before: str, after: str) -> None:
    assert repaired(START + ROWS.format(before), "DW412") == START + ROWS.format(after)


@pytest.mark.parametrize(
    "code",
    [
        'file = open("rows.csv", "a")\n    file.write("row")',
        'with open("rows.csv", "a") as file:\n        total = file.write("row")',
        'with open("rows.csv", "a") as file:\n        dist.barrier()\n        file.write("row")',
    ],
    ids=["a file that stays open", "a result", "a collective inside"],
)
def test_files_that_more_depends_on_have_no_patch(code: str) -> None:
    refused(START + ROWS.format(code), "DW412")


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("DW412", ROWS.format('with open(f"rows-{rank}.csv", "a") as file:\n        file.write("row")')),
        ("DW305", STATE.format("model.load_state_dict(state, assign=True)")),
    ],
)
def test_files_of_each_rank_and_other_loads_are_no_finding(rule: str, code: str) -> None:
    assert found(START + code, rule) == []
