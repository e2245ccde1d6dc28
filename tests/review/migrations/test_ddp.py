"""``--to ddp``: the text of the migrated script. tests/real_jobs runs migrated scripts on one and two ranks."""

import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.review.migrations.engine import migrate
from ddpwizard.app.review.migrations.types import Migration

SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader

from data import train_set


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(train_set, batch_size=64, shuffle=True, drop_last=True)
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{epoch}: {loss.item():.3f}")
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
"""


def migrated(text: str) -> str:
    migration = migrate(text, "train.py", "ddp")
    assert not migration.refusals
    compile(migration.after, "train.py", "exec")
    return migration.after


def changed_lines(text: str) -> list[str]:
    """Return the lines of the migrated script that the original does not have, without the added functions."""
    after = migrated(text)
    before = {line.strip() for line in text.splitlines()}
    body = after[after.index("def main") :] if "def main" in text else after[after.index("dist.destroy") :]
    return [line.strip() for line in body.splitlines() if line.strip() and line.strip() not in before]


def test_a_plain_script_gets_device_sampler_batch_wrap_and_one_writer():
    assert changed_lines(SCRIPT) == [
        "device = set_up()",
        "loader = DataLoader(train_set, batch_size=per_rank(64), "
        "sampler=DistributedSampler(train_set, shuffle=True, drop_last=True), drop_last=True)",
        "model = wrap(model, device)",
        "loader.sampler.set_epoch(epoch)",
        'print_once(f"{epoch}: {mean_over_ranks(loss).item():.3f}")',
        'save_once(model.module.state_dict(), "model.pt")',
        "finish()",
    ]


def test_model_of_the_module_is_freed_before_the_process_group():
    """A model that is freed after its group can block the end of a rank. A function frees its own when it returns."""
    head, _, body = SCRIPT.partition("def main():\n")
    body = textwrap.dedent(body[: body.index("\n\nif __name__")])
    assert changed_lines(head + body)[-2:] == ["del model", "finish()"]
    assert changed_lines(head + body + "del model\n")[-1] == "finish()"
    assert "del model" not in changed_lines(SCRIPT)


def test_numbers_of_the_step_are_those_of_all_ranks():
    step = "            optimizer.step()\n"
    text = SCRIPT.replace(step, f"{step}            seen += len(x)\n")
    text = text.replace("{loss.item():.3f}", "{loss.item():.3f} {int((x > 0).sum())} {loader.batch_size}")
    lines = changed_lines(text)
    assert "seen += len(x) * dist.get_world_size()" in lines
    assert "{(loader.batch_size * dist.get_world_size())}" in lines[-3]


def test_crlf_and_byte_order_mark_are_kept():
    windows = "\ufeff" + SCRIPT.replace("\n", "\r\n")
    assert migrate(windows, "train.py", "ddp").after == "\ufeff" + migrated(SCRIPT).replace("\n", "\r\n")


def test_each_line_keeps_its_newline_where_they_are_mixed():
    mixed = SCRIPT.replace("\n", "\r\n", 8).replace("    main()\n", "    main()\r\n")
    after = migrate(mixed, "train.py", "ddp").after
    assert after.replace("\r\n", "\n") == migrated(SCRIPT)
    assert "    criterion = nn.CrossEntropyLoss()\n" in after and after.endswith("main()\r\n    finish()\r\n")


def test_script_that_is_nested_too_deeply_is_one_line():
    with pytest.raises(UserError, match=r"train\.py: nested too deeply"):
        migrate(f"x = {'+'.join(['1'] * 50_000)}\n{SCRIPT}", "train.py", "ddp")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("shuffle=True, drop_last", "sampler=mine, drop_last", 10, "its own sampler"),
        ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")', 13, "a sum over samples"),
        (
            "            optimizer.step()\n",
            "            optimizer.step()\n            other.step()\n",
            21,
            "several optimizers",
        ),
        ("batch_size=64, ", "", 10, "one sample"),
        ("    device =", "    torch.distributed.init_process_group()\n    device =", 9, "a process group already"),
        ("            loss.backward()\n", "", 1, "no call of backward"),
        ("y.to(device))", "torch.arange(len(x)))", 16, "compares the samples of a batch"),
    ],
)
def test_refusals_name_the_line(old: str, new: str, line: int, message: str):
    second = "    other = torch.optim.SGD(model.parameters(), lr=1)\n" if "other" in new else ""
    text = SCRIPT.replace(old, new).replace("    criterion =", f"{second}    criterion =")
    migration = migrate(text, "train.py", "ddp")
    assert migration.after == text
    assert [note.line for note in migration.refusals] == [line]
    assert message in migration.refusals[0].message


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("if torch.cuda.is_available():\n    model = nn.DataParallel(model).cuda()", "model = wrap(model, device)"),
        (
            "if several:\n    if len(ids) > 1:\n        model = nn.DataParallel(model, ids)\n    model = model.cuda()",
            "if several:\n    if len(ids) > 1:\n        pass\n    model = model.cuda()\nmodel = wrap(model, device)",
        ),
        (
            "if one:\n    pass\nelif several:\n    model = nn.DataParallel(model).cuda()\nelse:\n    model.cuda()",
            "if one:\n    pass\nelif several:\n    model = model.cuda()\nelse:\n    model.cuda()\n"
            "model = wrap(model, device)",
        ),
        ("model = nn.DataParallel(model) if several else model", "model = wrap(model, device)"),
        (
            "model = nn.DataParallel(model).cuda() if several else model",
            "model = model.cuda() if several else model\nmodel = wrap(model, device)",
        ),
    ],
)
def test_a_wrapper_under_a_condition_is_one_of_every_rank(code: str, wanted: str):
    optimizer = "    optimizer = torch.optim"
    text = SCRIPT.replace(optimizer, f"{textwrap.indent(code, '    ')}\n{optimizer}")
    after = migrated(text)
    assert f"{textwrap.indent(wanted, '    ')}\n{optimizer}" in after
    assert "save_once(model.module.state_dict()" in after


def test_names_in_checkpoints_of_a_wrapper_under_a_condition_are_reported():
    load = "    model.load_state_dict(torch.load('last.pt'))\n    optimizer ="
    text = SCRIPT.replace("    optimizer =", f"    if several:\n        model = nn.DataParallel(model)\n{load}")
    (note,) = migrate(text, "train.py", "ddp").reports
    assert note.line == 14
    assert "names with `module.`" in note.message


def test_a_wrapper_and_an_optimizer_under_one_condition_are_refused():
    optimizer = "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    under = f"    if several:\n        model = nn.DataParallel(model)\n    {optimizer}"
    (note,) = migrate(SCRIPT.replace(optimizer, under), "train.py", "ddp").refusals
    assert note.line == 14
    assert "under one condition" in note.message


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_that_a_function_makes_and_a_name_moves_is_followed_to_its_end(reduction: str):
    made = f"def make():\n    return nn.CrossEntropyLoss(reduction={reduction!r})\n\n\ndef main"
    moved = "criterion = make()\n    criterion = criterion.to(device)"
    text = SCRIPT.replace("def main", made, 1).replace("criterion = nn.CrossEntropyLoss()", moved)
    refusals = migrate(text, "train.py", "ddp").refusals
    assert [note.line for note in refusals] == ([9] if reduction == "sum" else [])


LOSSES = """import torch
from torch import nn


def total(out, y):
    return nn.functional.cross_entropy(out, y, reduction="sum")


def mean(out, y):
    return nn.functional.cross_entropy(out, y)


class Contrast(nn.Module):
    def forward(self, out, y):
        return (out @ out.T).mean()
"""
NET = "from torch import nn\n\nfrom .blocks import Block\n\n\nclass Net(nn.Module):\n    kind = Block\n"
BLOCKS = "from torch import nn\n\n\nclass Block(nn.Module):\n    norm = nn.BatchNorm1d(4)\n"


def migrated_in_package(directory: Path, loss: str, imports: str) -> Migration:
    """Migrate the script as a module of a package with losses and a model."""
    package = directory / "project"
    package.mkdir()
    for name, text in {"__init__": "", "losses": LOSSES, "net": NET, "blocks": BLOCKS}.items():
        (package / f"{name}.py").write_text(text)
    text = SCRIPT.replace("nn.CrossEntropyLoss()", loss).replace("from data import train_set", imports)
    return migrate(text, str(package / "train.py"), "ddp")


@pytest.mark.parametrize(
    ("loss", "imports", "message"),
    [
        ("total", "from .losses import total", "ranks (losses.py:6)"),
        ("losses.total", "from . import losses", "(losses.py:6)"),
        ("losses.total", "import project.losses as losses", "(losses.py:6)"),
        ("Contrast()", "from project.losses import Contrast", "compares the samples of a batch with each other"),
    ],
)
def test_a_loss_of_another_file_is_read(loss: str, imports: str, message: str, tmp_path: Path):
    (note,) = migrated_in_package(tmp_path, loss, f"from data import train_set\n{imports}").refusals
    assert note.line == 17
    assert message in note.message


def test_layers_of_a_model_of_another_file_are_reported(tmp_path: Path):
    imports = "from data import train_set\nfrom .losses import mean\nfrom .net import Net as nn_Linear\nimport monai"
    migration = migrated_in_package(tmp_path, "mean", imports)
    assert not migration.refusals and not migration.reports
    text = migration.before.replace("nn.Linear(4, 2)", "nn_Linear()").replace("= mean", "= monai.losses.DiceLoss()")
    reports = migrate(text, migration.path, "ddp").reports
    assert [(note.line, note.message[:40]) for note in reports] == [
        (14, "BatchNorm: each rank normalises with the"),
        (19, "monai.losses.DiceLoss is not read: the r"),
    ]
    assert "(blocks.py:5)" in reports[0].message
