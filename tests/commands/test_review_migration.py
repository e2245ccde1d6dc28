"""``ddpwizard review --to``: output, written file, refusals."""

import json
from pathlib import Path

import pytest
from helpers.command import ddpwizard, refused

SCRIPT = """import torch
from torch.utils.data import DataLoader

from data import train_set

loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_the_change_is_shown_and_nothing_is_written(script: Path):
    done = ddpwizard("review", "--to", "ddp", "train.py", cwd=script.parent)
    assert done.returncode == 0
    assert "+model = wrap(model" in done.stdout and "--fix writes it" in done.stdout
    assert script.read_text() == SCRIPT


def test_fix_writes_and_undo_reverts(script: Path):
    done = ddpwizard("review", "--to", "ddp", "train.py", "--fix", cwd=script.parent)
    assert "migrated train.py to ddp" in done.stdout
    assert "model = wrap(model" in script.read_text()
    id_ = done.stdout.split()[-1]
    assert ddpwizard("undo", "--yes", id_, cwd=script.parent).returncode == 0
    assert script.read_text() == SCRIPT


def test_a_module_of_a_package_is_started_by_its_name(script: Path):
    package = script.parent / "project" / "tools"
    package.mkdir(parents=True)
    (package / "train.py").write_text(SCRIPT.replace("from data", "from ..data"))
    done = ddpwizard("review", "--to", "ddp", "project/tools/train.py", cwd=script.parent)
    assert "--nproc-per-node=2 -m project.tools.train\n" in done.stdout
    done = ddpwizard("review", "--to", "ddp", "train.py", cwd=package)
    assert f"-m project.tools.train, in {script.parent}\n" in done.stdout


def test_json_has_notes_and_diff(script: Path):
    script.write_text(SCRIPT.replace("Linear(4, 1)", "Sequential(torch.nn.Linear(4, 1), torch.nn.Dropout())"))
    done = ddpwizard("review", "--to", "ddp", "train.py", "--json", cwd=script.parent)
    document = json.loads(done.stdout)
    assert document["schema"] == "ddpwizard.migration/1"
    assert [note["line"] for note in document["reports"]] == [7]
    assert "+model = wrap(model" in document["diff"]
    assert document["applied"] is None


def test_a_refusal_names_the_line_and_writes_nothing(script: Path):
    text = SCRIPT.replace("mean()", "sum()")
    script.write_text(text)
    done = ddpwizard("review", "--to", "ddp", "train.py", "--fix", cwd=script.parent)
    assert done.returncode == 1
    assert "train.py:10: not migrated: the loss is a sum over samples" in done.stdout
    assert script.read_text() == text


def test_one_script_is_migrated_at_a_time(script: Path):
    assert "--to migrates one script" in refused(ddpwizard("review", "--to", "ddp", ".", cwd=script.parent), 2)
    with_format = ddpwizard("review", "--to", "ddp", "train.py", "--format", "sarif", cwd=script.parent)
    assert "--format does not go with --to" in refused(with_format, 2)


def test_resume_prints_how_often_it_saves_and_how_torchrun_continues(script: Path):
    first = ddpwizard("review", "--to", "resume", "train.py", cwd=script.parent)
    assert "every 100 optimizer steps" in first.stdout and "start the script as before" in first.stdout
    ddpwizard("review", "--to", "ddp", "train.py", "--fix", cwd=script.parent)
    done = ddpwizard("review", "--to", "resume", "train.py", "--fix", cwd=script.parent)
    assert "migrated train.py to resume" in done.stdout
    command = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc-per-node=2 --max-restarts=3 train.py"
    assert command in done.stdout
