"""The script that a log names, reviewed for the place where its ranks go through different collectives."""

from pathlib import Path

from ddpwizard.app.diagnosis.case import Case
from ddpwizard.app.diagnosis.intake import add_to_case
from ddpwizard.app.diagnosis.script_evidence import add_divergences
from ddpwizard.app.evidence import SCRIPT_ERROR, Evidence
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import CaseFacts, FixContext
from ddpwizard.app.logs.read import source_of_text
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
SIZES = Evidence(
    "log:collective-desync/3", "log", "op.preamble.length <= op.nbytes. 12 vs 4", "/x.log:7", values={"bytes": "12"}
)
SCRIPT = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.zeros(1)
for step in range(6):
    if step % 3 == 2:
        if dist.get_rank() == 0:
            continue
        dist.all_reduce(total)
"""


def first_fix(case: Case, script: Path) -> tuple[str, list[int | None]]:
    context = FixContext(evidence=case.evidence, script=str(script))
    fix = build_fixes(KNOWLEDGE.causes["collective-desync"], context, KNOWLEDGE)[0]
    return fix.id, [place.line for place in fix.places]


def test_the_first_fix_is_at_the_condition_that_the_review_finds(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    case = Case(KNOWLEDGE)
    case.add([SIZES])
    assert first_fix(case, script)[0] == "equal-shapes"
    add_divergences(case, script)
    assert first_fix(case, script) == ("decide-together", [8])


def test_an_error_of_the_script_is_not_explained_by_its_collectives(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    case = Case(KNOWLEDGE)
    case.add([Evidence(SCRIPT_ERROR, "log", "ValueError", "/x.log:3")])
    add_divergences(case, script)
    assert [item.id for item in case.evidence] == [SCRIPT_ERROR]


def test_a_missing_script_adds_nothing(tmp_path: Path):
    case = Case(KNOWLEDGE)
    add_divergences(case, tmp_path / "none.py")
    assert case.evidence == []


def test_a_log_that_shows_no_command_names_none(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    log = f"""\
[rank5]: Traceback (most recent call last):
[rank5]:   File "{script}", line 10, in <module>
[rank5]:     dist.all_reduce(total)
[rank5]: torch.distributed.DistNetworkError: connection dropped
"""
    timeline = add_to_case(Case(KNOWLEDGE), [source_of_text(log, "/x.log")]).timeline
    facts = CaseFacts(FixContext(timeline=timeline))
    assert (facts.target, facts.command) == ([str(script)], "")
    seen = FixContext(timeline=timeline, launch=["torchrun", "--nproc-per-node=3", str(script)])
    assert CaseFacts(seen).command == f"torchrun --nproc-per-node=3 {script}"
