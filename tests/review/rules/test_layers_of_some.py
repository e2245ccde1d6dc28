"""Layers that only some ranks put into a model which all of them train."""

import pytest
from helpers.review_snippets import found

START = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
model = load_model()
"""
WRAP = "\nmodel = DDP(model)\n"
FOUND = {
    "a new first layer": "if rank == 0:\n    model.stem = nn.Conv2d(8, 16, 3)" + WRAP,
    "a layer with weights of the old one": """
if rank == 0:
    new = nn.Conv2d(8, 16, 3)
    with torch.no_grad():
        new.weight.zero_()
        new.weight[:, :4].copy_(model.stem.weight)
    model.stem = new
model = DDP(model)
""",
    "a layer of a part": "if rank == 0:\n    model.encoder.head = nn.Linear(4, 2)" + WRAP,
    "a model that accelerate prepares": """
from accelerate import Accelerator
accelerator = Accelerator()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
if accelerator.is_main_process:
    model.stem = nn.Conv2d(8, 16, 3)
model, optimizer = accelerator.prepare(model, optimizer)
""",
}
HEALTHY = {
    "on every rank": "model.stem = nn.Conv2d(8, 16, 3)" + WRAP,
    "in both branches": (
        "if rank == 0:\n    model.head = nn.Linear(4, 2)\nelse:\n    model.head = nn.Linear(4, 2)" + WRAP
    ),
    "by an option": "if options.channels == 8:\n    model.stem = nn.Conv2d(8, 16, 3)" + WRAP,
    "another model, of rank 0 alone": "if rank == 0:\n    teacher = load_model()\n    teacher.head = nn.Linear(4, 2)"
    + WRAP,
    "after the training, to export it": WRAP
    + "if rank == 0:\n    exported = model.module\n    exported.head = nn.Identity()",
}


@pytest.mark.parametrize("code", FOUND.values(), ids=FOUND.keys())
def test_layer_of_some_ranks_is_found(code: str) -> None:
    (finding,) = found(START + code, "DW249")
    assert finding.branch is not None
    assert finding.branch < finding.line


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY.keys())
def test_layer_that_all_or_one_need_is_not_found(code: str) -> None:
    assert found(START + code, "DW249") == []
