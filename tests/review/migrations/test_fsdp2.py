"""``--to fsdp2``: the text of the migrated script, from one process and from DDP."""

from pathlib import Path

import pytest
from ddpwizard.app.review.migrations.engine import migrate

DDP = """import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.linear(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    device = torch.device("cpu")
    model = nn.Sequential(*[Block() for _ in range(2)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model = DDP(model)
    if os.path.exists("last.pt"):
        last = torch.load("last.pt", map_location="cpu")
        model.module.load_state_dict(last["model"])
        optimizer.load_state_dict(last["optimizer"])
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(norm)
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
    dist.destroy_process_group()


main()
"""


def changed_lines(before: str) -> list[str]:
    """Return the new lines of the script itself, without the added functions."""
    migration = migrate(before, "train.py", "fsdp2")
    assert not migration.refusals
    compile(migration.after, "train.py", "exec")
    known = {line.strip() for line in before.splitlines()}
    body = migration.after[migration.after.index("def main") :]
    return [line.strip() for line in body.splitlines() if line.strip() and line.strip() not in known]


def test_a_ddp_script_shards_blocks_loads_and_saves_whole_states():
    assert changed_lines(DDP) == [
        "model = shard(model, (Block,), next(model.parameters()).device)",
        'load_full_state_dict(model, last["model"])',
        'load_full_optimizer_state_dict(optimizer, last["optimizer"])',
        "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()",
        "whole_model = full_state_dict(model)  # on every rank",
        "whole_optimizer = full_optimizer_state_dict(optimizer)  # on every rank",
        'torch.save({"model": whole_model, "optimizer": whole_optimizer}, "last.pt")',
    ]


def test_the_optimizer_is_made_after_the_model_is_sharded():
    after = migrate(DDP, "train.py", "fsdp2").after
    assert after.index("= shard(model") < after.index("optimizer = torch.optim.AdamW")
    assert after.count("torch.optim.AdamW") == 1


def test_autocast_gives_the_precision_of_the_shards_on_gpus():
    after = migrate(DDP, "train.py", "fsdp2").after
    assert "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)" in after
    assert "import DistributedDataParallel" not in after


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("            print(norm)\n", "            print(norm, model(torch.randn(4, 8)))\n", 37, "only some ranks run"),
        ("    model = DDP(model)\n", "    model = DDP(model)\n    other = DDP(Block())\n", 25, "a second DDP"),
        ("    model = DDP(", "    optimizer.zero_grad()\n    model = DDP(", 23, "before the model is sharded"),
        ('(last["model"])', '(last["model"], strict=False)', 27, "load_state_dict with options"),
        (
            "            print(norm)\n",
            "            print([p.detach().norm() for p in model.parameters()])\n",
            37,
            "by hand",
        ),
        ("print(norm)\n", "print({n: p.numpy() for n, p in model.module.named_parameters()})\n", 37, "by hand"),
        ("print(norm)\n", "print(model.module[0].linear.weight.norm())\n", 37, "by hand"),
        (
            "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
            "[getattr(p, 'grad') for p in model.parameters()]",
            33,
            ".grad",
        ),
    ],
)
def test_refusals_name_the_line(old: str, new: str, line: int, message: str):
    text = DDP.replace(old, new)
    migration = migrate(text, "train.py", "fsdp2")
    assert migration.after == text
    assert [note.line for note in migration.refusals] == [line]
    assert message in migration.refusals[0].message


def test_a_model_that_saves_itself_is_refused_and_counting_weights_is_not():
    save = "    def save(self, path):\n        torch.save(self.state_dict(), path)\n\n\ndef main"
    text = DDP.replace("    model = nn.Sequential(*[Block() for _ in range(2)]).to", "    model = Block().to")
    (note,) = migrate(text.replace("\ndef main", save), "train.py", "fsdp2").refusals
    assert (note.line, "calls its own state_dict" in note.message) == (18, True)
    counted = text.replace(
        "print(norm)", "print(sum(p.numel() for n, p in model.named_parameters() if p.requires_grad))"
    )
    assert not migrate(counted, "train.py", "fsdp2").refusals


def test_gradients_that_another_file_reads_are_found(tmp_path: Path):
    tools = "def grad_norm(model):\n    return sum(p.grad.norm() ** 2 for p in model.parameters()) ** 0.5\n"
    (tmp_path / "tools.py").write_text(tools)
    text = DDP.replace("print(norm)", "print(norm, grad_norm(model))").replace(
        "import os", "import os\nfrom tools import *"
    )
    assert not migrate(text, str(tmp_path / "train.py"), "fsdp2").refusals, "a star import is not followed"
    named = text.replace("import *", "import grad_norm")
    (note,) = migrate(named, str(tmp_path / "train.py"), "fsdp2").refusals
    assert note.line == 38
    assert note.message.startswith(".grad has the part of this rank") and note.message.endswith("(tools.py:2)")


def test_a_saved_model_object_of_a_plain_script_is_refused_at_its_line():
    plain = """import torch
from torch.utils.data import DataLoader
from data import rows
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(rows, batch_size=4):
    model(x).square().mean().backward()
    optimizer.step()
torch.save(model, "m.pt")
"""
    (note,) = migrate(plain, "train.py", "fsdp2").refusals
    assert (note.line, note.message[:26]) == (9, "it saves the model object,")


def test_a_save_of_one_rank_in_a_function_is_called_by_all():
    save = """def save(model, step):
    torch.save(model.module.state_dict(), "last.pt")
    print(step)


def main"""
    guard = "        if rank == 0 and step % 2 == 0:\n            save(model, step)\n    dist.destroy"
    text = DDP.replace("def main", save).replace("    dist.destroy", guard)
    after = migrate(text, "train.py", "fsdp2").after
    assert '    save_once(full_state_dict(model), "last.pt")\n    print_once(step)\n' in after
    assert "        if step % 2 == 0:\n            save(model, step)\n" in after
    only = migrate(text.replace(" and step % 2 == 0", ""), "train.py", "fsdp2")
    assert [note.message.partition(",")[0] for note in only.refusals] == ["only some ranks save here"]


def test_a_model_that_is_wrapped_after_its_optimizer_was_made_elsewhere_is_sharded_before():
    build = """def build():
    model = Block()
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def main"""
    made = "    model = nn.Sequential(*[Block() for _ in range(2)]).to(device)\n"
    made += "    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    assert made in DDP
    after = migrate(
        DDP.replace("def main", build).replace(made, "    model, optimizer = build()\n"), "t.py", "fsdp2"
    ).after
    assert "    model = Block()\n    model = shard(model, (), device_of_rank())\n    return model, torch" in after
    assert "DDP(" not in after.replace("FSDP", "")


def test_the_model_is_sharded_before_its_parameters_are_listed():
    decay = "    decay = [p for p in model.parameters() if p.ndim > 1]\n"
    listed = f"{decay}    optimizer = torch.optim.AdamW(decay, lr=0.1)\n"
    text = DDP.replace("    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n", listed)
    after = migrate(text, "train.py", "fsdp2").after
    assert after.index("model = shard(") < after.index("decay = [") < after.index("optimizer = ")
    refused = migrate(text.replace("model = DDP(model)", "engine = DDP(model)"), "train.py", "fsdp2")
    assert [(note.line, "which replaces them" in note.message) for note in refused.refusals] == [(23, True)]
