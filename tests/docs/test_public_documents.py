"""The JSON Schemas: what the commands really print is valid, and has no field that its schema does not name."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ddpwizard import cli
from ddpwizard.app.session import Session
from helpers.command import ddpwizard
from helpers.jobs import hung_report, launched_as_forks
from helpers.single_process_script import SINGLE
from public_documents import DIALECT, DOCUMENTS, json_schema

ROOT = Path(__file__).parents[2]
LOG = """\
[rank1]: RuntimeError: The server socket has failed to listen on any local network address. port: 29500, EADDRINUSE
"""
SCRIPT = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
data = torch.randn(64, 8)
model = DDP(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for epoch in range(3):
    for batch in DataLoader(data, batch_size=8, sampler=sampler):
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        dist.all_reduce(loss)
"""


def check(kind: str, document: dict[str, Any]) -> None:
    """Assert that a document is of a kind, valid, and without unknown fields."""
    assert document["schema"] == f"ddpwizard.{kind}/1"
    jsonschema.Draft202012Validator(json_schema(kind, closed=True)).validate(document)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a log, scripts and the files of a job that contradict each other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(LOG)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "single.py").write_text(SINGLE)
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2}')
    (tmp_path / "start.sh").write_text("deepspeed --num_gpus=4 train.py --deepspeed ds_config.json\n")
    return tmp_path


PLAN = ["plan", "--model", "gpt2", "--gpus", "4", "--gpu", "H100"]
PRINTED: list[tuple[str, list[str]]] = [
    ("agreement", ["review", "--launch-files", "ds_config.json", "start.sh"]),
    ("cause", ["explain", "port-in-use"]),
    ("chapter", ["explain", "ranks"]),
    ("completion", ["completion", "fish"]),
    ("diagnosis", ["diagnose", "train.log"]),
    ("diagnosis", ["diagnose", "two nodes hang in the first all_reduce, NCCL, one GPU each"]),
    ("diagnosis", ["diagnose", "train.log", "--script", "train.py"]),
    ("error", ["explain", "no-such-thing"]),
    ("explain-search", ["explain", "checkpoint", "rank"]),
    ("kb-check", ["kb", "check"]),
    ("kb-coverage", ["kb", "coverage"]),
    ("kb-graph", ["kb", "graph"]),
    ("kb-list", ["kb", "list"]),
    ("kb-new", ["kb", "new", "our-own", "--lab", "--log", "train.log", "--into", "team"]),
    ("lab", ["explain", "7.2"]),
    ("learn", ["learn"]),
    ("migration", ["review", "--to", "ddp", "single.py"]),
    ("plan", PLAN),
    ("plan", [*PLAN, "--reference-gpus", "1", "--lr", "1e-4", "--curve"]),
    ("plan", ["plan", "--params", "7B", "--gpus", "2", "--gpu", "A100-80G"]),
    ("review", ["review", "train.py", "--statistics"]),
    ("rule", ["explain", "DW401"]),
    ("rules", ["review", "--rules"]),
    ("sessions", ["sessions", "list"]),
    ("term", ["explain", "reduce-scatter"]),
    ("undo-list", ["undo", "--list"]),
]
ELSEWHERE = {"doctor", "export", "serve", "triage", "undo"}


@pytest.mark.parametrize(("kind", "words"), PRINTED, ids=lambda value: value if isinstance(value, str) else "")
def test_printed_document_is_valid(
    kind: str, words: Sequence[str], files: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    cli.run([*words, "--json"])
    check(kind, json.loads(capfdbinary.readouterr().out))


def test_exported_session_and_an_undone_fix_are_valid(files: Path) -> None:
    Session.new(argv=["ddpwizard"]).append("answer", question="symptom", answer="hangs")
    check("export", json.loads(ddpwizard("sessions", "export", "--json").stdout))
    check("sessions", json.loads(ddpwizard("sessions", "list", "--json").stdout))
    ddpwizard("review", "train.py", "--fix", "--unsafe-fixes", cwd=files)
    check("undo-list", json.loads(ddpwizard("undo", "--list", "--json").stdout))
    check("undo", json.loads(ddpwizard("undo", "--yes", "--json").stdout))


def test_checks_of_this_machine_are_valid() -> None:
    check("doctor", json.loads(ddpwizard("doctor", "--allow", "reads", "--json").stdout))


@pytest.mark.jobs
@pytest.mark.slow
def test_triage_of_a_hung_job_is_valid(tmp_path: Path) -> None:
    with launched_as_forks("metrics.py", tmp_path, 2) as job:
        hung_report(job)
        check("triage", json.loads(ddpwizard("triage", "--pid", str(job.pid), "--json").stdout))


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_schema_is_one_and_describes_its_document(kind: str) -> None:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT and schema["description"]
    assert {"schema"} <= set(schema["required"]) <= schema["properties"].keys()
    document = dict.fromkeys(schema["required"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(document)


def test_every_kind_of_the_code_has_a_schema_that_is_tested() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
    kinds = set(re.findall(r'public_document\("([a-z-]+)"', code)) | set(re.findall(r'ddpwizard\.(error)/1"', code))
    kinds |= {"cause", "rule", "chapter", "lab", "term", "explain-search"}
    assert kinds | {"error"} == DOCUMENTS.keys()
    assert {kind for kind, _ in PRINTED} | ELSEWHERE == DOCUMENTS.keys()
