"""``--to resume``: the text of the migrated script. tests/real_jobs kills such scripts and starts them again."""

import ast

import pytest
from ddpwizard.app.review.migrations.engine import migrate

SETUP = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

from data import train_set

loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = """\
        loss = model(x).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SCRIPT = SETUP + "for epoch in range(3):\n    for x in loader:\n" + STEP


def resumable(text: str) -> list[str]:
    """Return the lines of the migrated script behind the code that it adds at the top."""
    migration = migrate(text, "train.py", "resume")
    assert not migration.refusals, migration.refusals
    ast.parse(migration.after)
    _, _, behind = migration.after.partition("loader = DataLoader(")
    return behind.splitlines()


def refusal(text: str) -> tuple[int, str]:
    migration = migrate(text, "train.py", "resume")
    assert migration.after == text
    (note,) = migration.refusals
    return note.line, note.message


def test_loops_go_through_the_checkpoint() -> None:
    lines = resumable(SCRIPT)
    assert 'checkpoint = Checkpoint("train_checkpoint.pt", every=100, model=model, optimizer=optimizer)' in lines
    assert "for epoch in checkpoint.epochs(range(3)):" in lines
    assert "    for x in checkpoint.batches(loader):" in lines
    assert lines[-1] == "        checkpoint.save()"


def test_path_of_the_run_is_one_that_the_script_does_not_use_and_a_plain_name() -> None:
    lines = resumable(SCRIPT + 'torch.save(model.state_dict(), f"train_checkpoint.pt")\n')
    assert any('Checkpoint("train_run_state.pt", ' in line for line in lines)
    after = migrate(SCRIPT, 'it"s\n\udcff.py', "resume").after
    ast.parse(after)
    assert 'Checkpoint("it_s___checkpoint.pt", ' in after


def test_second_migration_changes_nothing() -> None:
    once = migrate(SCRIPT, "train.py", "resume").after
    assert refusal(once)[1] == "it saves and resumes already"


def test_counters_and_sums_are_saved() -> None:
    loop = "step, best = 0, 9.0\nfor epoch in range(3):\n    total = 0.0\n    for x in loader:\n"
    behind = "        step += 1\n        total += loss.item()\n    best = min(best, total)\nprint(best)\n"
    lines = resumable(SETUP + loop + STEP + behind)
    assert "    [step, best, total] = checkpoint.restore(step=step, best=best, total=total)" in lines
    assert "        checkpoint.save(step=step, total=total)" in lines


def test_counter_that_is_read_before_the_batches_is_restored_first() -> None:
    loop = "epoch = 0\nwhile epoch < 3:\n    print(epoch)\n    epoch += 1\n    for x in loader:\n"
    lines = resumable(SETUP + loop + STEP)
    assert lines.index("    [epoch] = checkpoint.restore(epoch=epoch)") < lines.index("    print(epoch)")


@pytest.mark.parametrize(
    ("loop", "wanted"),
    [
        ("for i, x in enumerate(loader):", "for i, x in enumerate(checkpoint.batches(loader), checkpoint.batch):"),
        (
            "for i, x in enumerate(loader, 1):",
            "for i, x in enumerate(checkpoint.batches(loader), 1 + checkpoint.batch):",
        ),
        (
            "for i, x in enumerate(loader, start=1):",
            "for i, x in enumerate(checkpoint.batches(loader), start=1 + checkpoint.batch):",
        ),
    ],
)
def test_numbers_of_batches_go_on(loop: str, wanted: str) -> None:
    assert f"    {wanted}" in resumable(SCRIPT.replace("for x in loader:", loop))


@pytest.mark.parametrize(
    ("parameters", "wanted"),
    [
        ("model, loader", "model, loader, checkpoint"),
        ("model, loader=loader", "model, loader=loader, *, checkpoint"),
        ("model, *rest", "model, *rest, checkpoint"),
        ("model: nn.Module, *, lr=1", "model: nn.Module, *, lr=1, checkpoint"),
    ],
)
def test_checkpoint_is_passed_to_the_function_with_the_batches(parameters: str, wanted: str) -> None:
    function = f"def train({parameters}):\n    for x in loader:\n{STEP}\n\n"
    lines = resumable(SETUP + function + "for epoch in range(3):\n    train(model, loader)\n")
    assert f"def train({wanted}):" in lines
    assert "    train(model, loader, checkpoint=checkpoint)" in lines


def test_counter_of_both_functions_is_saved_for_each() -> None:
    function = f"def train(step):\n    for x in loader:\n{STEP}        step += 1\n    return step\n\n"
    lines = resumable(SETUP + function + "step = 0\nfor epoch in range(3):\n    step = train(step)\n")
    assert "    [step] = checkpoint.restore(step_of_epochs=step)" in lines
    assert "        checkpoint.save(step=step)" in lines


def test_meter_that_is_not_saved_is_reported() -> None:
    text = SCRIPT.replace("import torch\n", "import torch\nfrom meters import Meter\nmeter = Meter()\n", 1)
    (note,) = migrate(text + "        meter.update(loss)\n", "train.py", "resume").reports
    assert note == (18, "what meter has collected is not saved: a resumed run starts it empty")


def test_parts_without_a_name_of_their_own_are_found() -> None:
    text = SCRIPT.replace("for epoch", "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nfor epoch", 1)
    text = text.replace("for epoch", 'scaler = torch.amp.GradScaler("cpu")\nfor epoch', 1)
    made = next(line for line in resumable(text) if "Checkpoint(" in line)
    assert made.endswith("model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)")


def test_newlines_are_kept() -> None:
    after = migrate(SCRIPT.replace("\n", "\r\n"), "train.py", "resume").after
    assert after.count("\n") == after.count("\r\n")


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        (
            "from data import train_set",
            "class Stream(torch.utils.data.IterableDataset):\n    pass\ntrain_set = Stream()",
            9,
            "an IterableDataset: its position cannot be restored from outside",
        ),
        (
            "for epoch in range(3):",
            "for fold in range(2):\n  for epoch in range(3):",
            10,
            "a loop around the epoch loop: its position is not saved; start one run per pass",
        ),
        (
            "for x in loader:",
            "for x in zip(loader, loader):",
            11,
            "the number of batches of zip() is not known: loop over the loader",
        ),
        (
            "for x in loader:",
            "while True:",
            11,
            "the batches are counted by while: its position cannot be saved; use for",
        ),
        (
            "model = nn.Linear(4, 2)",
            "import accelerate\nmodel = accelerate.Accelerator().prepare(nn.Linear(4, 2))",
            9,
            "Accelerate: use its save_state and load_state; it saves and restores the state itself",
        ),
    ],
)
def test_refusal_names_the_place(before: str, after: str, line: int, message: str) -> None:
    text = SCRIPT.replace(before, after)
    if "fold" in after:
        text = text.replace("    for x", "      for x").replace("        ", "          ")
    assert refusal(text) == (line, message)


AMP = """\
if torch.cuda.is_available():
    scaler = torch.amp.GradScaler()
"""


@pytest.mark.parametrize(
    ("setup", "behind", "at"),
    [
        (
            "",
            "        if x.sum() > epoch:\n            last = 1.0\n        if epoch > 1:\n            print(last)\n",
            19,
        ),
        ("", "        if epoch > 0:\n            print(last)\n        last = x\n", 17),
        (AMP, "        if torch.cuda.is_available():\n            scaler.update()\n", 11),
    ],
)
def test_what_may_have_no_value_in_a_run_that_continues_is_refused(setup: str, behind: str, at: int) -> None:
    text = SCRIPT.replace("for epoch", f"{setup}for epoch", 1) + behind
    line, why = refusal(text)
    assert line == at
    assert "may have no value" in why


@pytest.mark.parametrize(
    ("setup", "behind"),
    [
        ("", "        if epoch > 1:\n            last = 1.0\n            print(last)\n"),  # not read by a later batch
        ("", "    if epoch == 1:\n        x = x.clone()\n        print(x)\n"),  # of the last batch
        (
            "every = len(loader)\n",
            "        if every:\n            last = x\n        if every:\n            print(last)\n",
        ),
        (AMP, "        scaler.update()\n"),  # the script fails without it
        ("", "        if epoch > 1:\n            last = 1.0\nlast = 2.0\n"),
    ],
)
def test_what_an_iteration_binds_before_it_reads_it_is_not_saved(setup: str, behind: str) -> None:
    text = SCRIPT.replace("for epoch", f"{setup}for epoch", 1) + behind
    assert "        checkpoint.save()" in resumable(text)


def test_second_training_loop_is_refused() -> None:
    again = "for epoch in range(3):\n    for x in loader:\n" + STEP.replace("optimizer.", "second.")
    text = SCRIPT + "second = torch.optim.SGD(model.parameters(), lr=0.1)\n" + again
    assert refusal(text) == (18, "a second training loop (the first at line 11): split the script")


def test_random_numbers_of_its_own_are_reported() -> None:
    text = SCRIPT.replace("import torch\n", "import random\nimport torch\nown = random.Random(0)\n", 1)
    (note,) = migrate(text, "train.py", "resume").reports
    assert note.line == 3
    assert note.message.startswith("the state of these random numbers is not saved")
