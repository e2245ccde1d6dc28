"""DW201: DDP before the move to the device, and correct code that looks like it."""

import textwrap

import pytest
from helpers.review_snippets import found, lines, refused, repaired

NET = """
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
"""

FIXED = {
    "moved after the wrap": (
        """
        model = Net()
        model = DDP(model, device_ids=[local_rank])
        model.to(device)
        """,
        """
        model = Net()
        model.to(device)
        model = DDP(model, device_ids=[local_rank])
        """,
        "safe",
    ),
    "assigned after the wrap": (
        """
        model = Net()
        model = DDP(model)
        model = model.cuda(local_rank)  # the GPU
        train(model)
        """,
        """
        model = Net()
        model = model.cuda(local_rank)
        model = DDP(model)
        train(model)
        """,
        "safe",
    ),
    "around the wrap": (
        """
        model = DDP(Net(), device_ids=[local_rank]).to(device)
        """,
        """
        model = DDP(Net().to(device), device_ids=[local_rank])
        """,
        "safe",
    ),
    "under another name": (
        """
        net = Net()
        ddp = DDP(net)
        ddp.cuda()
        """,
        """
        net = Net()
        net.cuda()
        ddp = DDP(net)
        """,
        "safe",
    ),
    "wrapped in one of two branches": (
        """
        net = Net()
        if use_cuda:
            net = DDP(net)
        else:
            net = nn.parallel.DistributedDataParallelCPU(net)
        net.to(device)
        """,
        """
        net = Net()
        net.to(device)
        if use_cuda:
            net = DDP(net)
        else:
            net = nn.parallel.DistributedDataParallelCPU(net)
        """,
        "safe",
    ),
    "made in the wrap": (
        """
        model = DDP(Net(), device_ids=[local_rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        model.to(device)
        """,
        """
        model = DDP(Net().to(device), device_ids=[local_rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        """,
        "unsafe",
    ),
    "never moved": (
        """
        model = Net()
        model.train()
        model = DDP(model, device_ids=[local_rank])
        """,
        """
        model = Net()
        model.train()
        model = DDP(model.to(local_rank), device_ids=[local_rank])
        """,
        "unsafe",
    ),
    "made by a function": (
        """
        def build():
            return Net()
        def main():
            model = build()
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            model = DDP(model, device_ids=[local_rank])
        """,
        """
        def build():
            return Net()
        def main():
            model = build()
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            model = DDP(model.to(local_rank), device_ids=[local_rank])
        """,
        "unsafe",
    ),
    "a torchvision model": (
        """
        import torchvision
        model = torchvision.models.resnet18()
        model = DDP(model, device_ids=[local_rank])
        """,
        """
        import torchvision
        model = torchvision.models.resnet18()
        model = DDP(model.to(local_rank), device_ids=[local_rank])
        """,
        "unsafe",
    ),
    "in a trainer": (
        """
        class Trainer:
            def __init__(self, device):
                self.model = Net()
                self.model = DDP(self.model)
                self.model.to(device)
        """,
        """
        class Trainer:
            def __init__(self, device):
                self.model = Net()
                self.model.to(device)
                self.model = DDP(self.model)
        """,
        "safe",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_patch_moves_the_model_before_the_wrap(name: str) -> None:
    before, after, safety = FIXED[name]
    code = NET + textwrap.dedent(before)
    (finding,) = found(code, "DW201")
    assert finding.cause == "wrap-before-device"
    assert finding.fix
    assert finding.fix.safety == safety
    assert bool(finding.fix.why_unsafe) == (safety == "unsafe")
    assert repaired(code, "DW201") == NET + textwrap.dedent(after)


CORRECT = {
    "moved in the wrap": "model = DDP(Net().to(device), device_ids=[local_rank])",
    "moved before": "model = Net().cuda()\nmodel = DDP(model, device_ids=[local_rank])",
    "moved in place before": "model = Net()\nmodel.to(local_rank)\nmodel = DDP(model, device_ids=[local_rank])",
    "moved before and after": "model = Net().to(device)\nmodel = DDP(model, device_ids=[0])\nmodel.to(device)",
    "on the CPU": "model = DDP(Net())",
    "explicitly on the CPU": "model = DDP(Net())\nmodel.to('cpu')",
    "another type, not another device": "model = DDP(Net())\nmodel.to(torch.bfloat16)\nmodel.to(dtype=dtype)",
    "made on the device": "with torch.device(device):\n    model = Net()\nmodel = DDP(model, device_ids=[local_rank])",
    "the default device is set": "torch.set_default_device('cuda')\nmodel = DDP(Net(), device_ids=[local_rank])",
    "a device goes into the constructor": "model = DDP(Net(device=device), device_ids=[local_rank])",
    "made elsewhere": "from models import build\nmodel = DDP(build(args), device_ids=[local_rank])",
    "moved by a helper": """
        from helpers import place
        model = Net()
        place(model)
        model = DDP(model, device_ids=[local_rank])
    """,
    "moved by a function of the file": """
        def build(device):
            model = Net()
            return model.to(device)
        model = DDP(build(device), device_ids=[local_rank])
    """,
    "a class that moves itself": """
        class Own(nn.Module):
            def __init__(self):
                self.weight = torch.zeros(1, device="cuda")
        model = DDP(Own(), device_ids=[local_rank])
    """,
    "a parameter": """
        class Trainer:
            def __init__(self, model, local_rank):
                self.model = model.to(local_rank)
                self.model = DDP(self.model, device_ids=[local_rank])
    """,
    "a parameter of unknown origin": """
        def wrap(model, local_rank):
            return DDP(model, device_ids=[local_rank])
    """,
    "loaded onto the device": """
        model = torch.load("m.pt", map_location=device)
        model = DDP(model, device_ids=[local_rank])
    """,
    "another DDP": """
        from apex.parallel import DistributedDataParallel
        model = DistributedDataParallel(Net())
        model.cuda()
    """,
    "batches move, not the model": """
        model = DDP(Net().to(device))
        for x in loader:
            x = x.to(device)
            model(x)
    """,
}


@pytest.mark.parametrize("name", CORRECT)
def test_model_on_its_device_is_not_a_finding(name: str) -> None:
    assert lines(NET + textwrap.dedent(CORRECT[name]) + "\n", "DW201") == []


REFUSED = {
    "the device is only known after the wrap": (
        "model = DDP(Net())\ndevice = torch.device('cuda', local_rank)\nmodel.to(device)",
        "`device` is set only after the wrap",
    ),
    "made in the block of the wrap": (
        "model = other\nif cuda:\n    model = Net()\n    model = DDP(model)\nmodel.to(device)",
        "in the block of the wrap",
    ),
    "an expression": ("model = DDP(Net() if small else Net(2))\nmodel.to(device)", "is an expression"),
    "in another block": ("model = DDP(Net())\nif cuda:\n    model.to(device)", "another block"),
    "on a line with others": ("model = DDP(Net()); model.to(device)", "shares its line with"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_patch_if_the_move_cannot_be_placed(name: str) -> None:
    code, why = REFUSED[name]
    assert why in refused(NET + code + "\n", "DW201")


def test_late_move_of_a_model_of_unknown_origin_is_a_warning() -> None:
    code = "from models import build\n" + NET + "model = build(args)\nmodel = DDP(model)\nmodel.to(device)\n"
    (finding,) = found(code, "DW201")
    assert finding.severity == "warning"
    assert "only at line" in finding.message
