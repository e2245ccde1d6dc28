"""``--to ddp``: the text of the migrated script. tests/real_jobs runs migrated scripts on one and two ranks."""

import pytest
from ddpwizard.app.review.migrations.engine import migrate

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
