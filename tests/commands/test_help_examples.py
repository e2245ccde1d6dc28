"""Every example in the help texts runs as it is written, in a directory that has the files it names."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner
from ddpwizard import cli
from ddpwizard.app.session import Session
from helpers.flight_recorder_dumps import dump, entry, write
from helpers.single_process_script import SINGLE

pytestmark = pytest.mark.jobs

SCRIPT = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
    os.environ.setdefault(name, value)  # accelerate launch without a configuration starts one plain process
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 8))
model = DDP(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for epoch in range(3):
    for (batch,) in DataLoader(data, batch_size=8, sampler=sampler):
        loss = model(batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
dist.destroy_process_group()
"""
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
LOG = "[rank1]: RuntimeError: The server socket has failed to listen on port 29500: EADDRINUSE\n"
STATED = re.compile(r"A setting\.json:\n\s*({.*})", re.DOTALL)  # the file that the help of plan shows
EXPECTED = (0, 1)  # nothing found, something found
COMPLETIONS = (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions")


def command_paths(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command below a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from command_paths(command, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    return click.unstyle(CliRunner().invoke(cli.group, [*words, "--help"], terminal_width=200).output)


def examples() -> dict[str, list[str]]:
    """Return the command lines of the help text of each command that has examples, in their order.

    The remark that follows after two spaces is left out.
    """
    found: dict[str, list[str]] = {}
    for words in command_paths(cli.group):
        part = help_of(words).partition("Examples:")[2].partition("\n\n")[0]
        lines = [re.split(r" {2,}", line.strip())[0] for line in part.splitlines() if "ddpwizard" in line]
        if lines:
            found[" ".join(words)] = lines
    return found


EXAMPLES = examples()
INSPECTS_ALL_JOBS = ("triage", "doctor")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the examples name, and a home of its own."""
    from safetensors.torch import save_file

    root = tmp_path
    files = {
        "train.py": SCRIPT,
        "train.log": LOG,
        "logs/rank1.log": LOG,
        "src/train.py": SCRIPT,
        "job/ds_config.json": '{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2}',
        "job/start.sh": "deepspeed --num_gpus=4 train.py --deepspeed ds_config.json\n",
        "single/train.py": SINGLE,
        "llama/config.json": json.dumps(LLAMA),
    }
    stated = STATED.search(help_of(("plan",)))
    assert stated
    files["setting.json"] = stated[1].partition("\n\n")[0]
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    save_file({"model.embed_tokens.weight": torch.zeros(256, 64)}, root / "llama" / "model.safetensors")
    write(root / "nccl_trace", {rank: dump([entry(n) for n in range(3)], {"0": [0, 1]}) for rank in range(2)})
    for folder in COMPLETIONS:
        (root / folder).mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / ".state"))
    session = Session.new(argv=[], version="0", cwd=str(root))
    session.append("text", text=LOG, origin=str(root / "train.log"), words=False)
    return root


def run(root: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of a user; ``ddpwizard`` is this one, and standard input is closed."""
    programs = root / "bin"
    if not programs.is_dir():
        programs.mkdir()
        (programs / "ddpwizard").write_text(f'#!/bin/sh\nexec {sys.executable} -m ddpwizard "$@"\n')
        (programs / "ddpwizard").chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "HOME": str(root), "PATH": path}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=root / "single" if "--to " in line else root,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [pytest.param(each, marks=[pytest.mark.alone] * (each in INSPECTS_ALL_JOBS)) for each in EXAMPLES],
)
def test_the_examples_run_one_after_the_other(command: str, directory: Path) -> None:
    for example in EXAMPLES[command]:
        line = example.replace("/tmp/nccl_trace", str(directory / "nccl_trace")).replace("4711", str(os.getpid()))
        done = run(directory, line)
        assert done.returncode in EXPECTED, (line, done.stdout[-500:], done.stderr[-1500:])
        assert "Traceback" not in done.stderr
        if line.endswith("--json"):
            json.loads(done.stdout)
