"""The review engine: rules, trials of patches, and the search for files."""

import ast
import gc
import os
import time
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.review import review
from ddpwizard.app.review.file_review import review_file
from ddpwizard.app.review.rule_context import Patch, Script, Violation
from ddpwizard.app.training_script.edits import Edit
from helpers.buggy_script import BUGGY_SCRIPT
from helpers.review_snippets import KNOWLEDGE, apply_fixes, script


def test_rules_of_the_knowledge_base_and_of_the_code_are_the_same() -> None:
    assert {*review.RULES, *review.OF_PROGRAM} == set(KNOWLEDGE.rules)


def test_script_with_many_bugs_is_fixed_in_one_run() -> None:
    findings = review.review_text(BUGGY_SCRIPT, "train.py", KNOWLEDGE)
    assert [finding.rule for finding in findings] == ["DW401", "DW101", "DW201", "DW203", "DW401"]
    after, done = apply_fixes(BUGGY_SCRIPT, None, ["safe", "unsafe"])
    assert len(done) == 5
    assert review.review_text(after, "train.py", KNOWLEDGE) == []
    ast.parse(after)


def test_only_selected_rules_and_allowed_patches_are_applied() -> None:
    assert {f.rule for f in review.review_text(BUGGY_SCRIPT, "t.py", KNOWLEDGE, ["DW203"])} == {"DW203"}
    after, done = apply_fixes(BUGGY_SCRIPT, None, ["safe"])
    assert [finding.rule for finding in done] == ["DW201"]
    assert "model = DDP(Net().cuda())" in after


def test_findings_are_evidence() -> None:
    findings = review.review_text(BUGGY_SCRIPT, "/w/train.py", KNOWLEDGE)
    evidence = review.evidence_of_findings(findings)
    assert [item.id for item in evidence] == [f"review.{finding.rule}" for finding in findings]
    assert evidence[0].where == "/w/train.py:21"
    assert {item.id for item in evidence} <= set(KNOWLEDGE.findings())


def test_column_of_every_finding_counts_characters() -> None:
    text = script("""
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        model = DDP(torch.nn.Linear(2, 2))
        if rank == 0:
            größe = "größe"; dist.barrier()
        größe = "größe"; print(model.in_features)
        größe = "größe"; torch.cuda.set_device(rank)
        for step, batch in enumerate(torch.rand(8, 2)):
            loss = model(batch).sum()
            größe = "größe"; model.require_backward_grad_sync = step % 2 == 1
            loss.backward()
    """)
    findings = review.review_text(text, "train.py", KNOWLEDGE)
    found = {finding.rule: text.splitlines()[finding.line - 1][finding.column - 1 :] for finding in findings}
    assert found == {
        "DW401": "dist.barrier()",
        "DW218": "model.in_features)",
        "DW101": "rank)",
        "DW253": "model.require_backward_grad_sync = step % 2 == 1",
    }


BAD = {
    "does not parse": ([Edit(0, 0, "if (")], "not valid Python"),
    "changes nothing": ([Edit(0, 0, "# a comment\n")], "the finding would stay"),
    "reads a name that is bound nowhere": ([Edit(0, 10, "x = nowhere")], "nowhere, which is not bound"),
    "overlaps itself": ([Edit(0, 4, ""), Edit(2, 5, "")], "overlaps"),
    "brings another finding": (
        [Edit(0, 10, "m = torch.nn.Linear(1, 1)\nm = torch.nn.parallel.DistributedDataParallel(m)\nm.cuda()")],
        "it would cause DW201",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_patch_that_fails_its_trial_is_not_offered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edits, why = BAD[name]
    text = script("target = 1\n")
    shift = text.index("target")

    def check(given: Script) -> list[Violation]:
        """A rule that finds the line with the name ``target``."""
        at = [n for n in ast.walk(given.source.tree) if isinstance(n, ast.Name) and n.id == "target"]
        moved = [Edit(edit.start + shift, edit.end + shift, edit.text) for edit in edits]
        patch = Patch(id="x", safety="safe", edits=moved)
        return [
            Violation(
                line=n.lineno, column_bytes=1, end_line=n.lineno, message="m", confidence=1.0, patch=lambda: patch
            )
            for n in at
        ]

    monkeypatch.setitem(review.RULES, "DW101", check)
    (finding,) = review.review_text(text, "t.py", KNOWLEDGE)
    assert finding.fix
    assert finding.fix.safety == "display"
    assert finding.fix.edits == []
    assert why in (finding.fix.why_unsafe or "")


def test_file_is_decoded_with_its_own_encoding(tmp_path: Path) -> None:
    path = tmp_path / "t.py"
    path.write_bytes("# coding: latin-1\nname = 'größe'\n".encode("latin-1"))
    assert review_file(path, KNOWLEDGE) == []
    with pytest.raises(UserError, match=r"cannot read .*gone\.py: No such file or directory"):
        review_file(tmp_path / "gone.py", KNOWLEDGE)
    with pytest.raises(UserError, match="is not a regular file"):
        review_file(tmp_path, KNOWLEDGE)


def test_pipe_instead_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.py")
    with pytest.raises(UserError, match="not a regular file"):
        review_file(tmp_path / "t.py", KNOWLEDGE)


def timed_review(text: str) -> float:
    """Return the processor time of a review."""
    began = time.process_time()
    review.review_text(text, "t.py", KNOWLEDGE)
    return time.process_time() - began


ASSIGNED_FROM_EACH_OTHER = "".join(f"{x} = {y}\n" for x in "abcdef" for y in "abcdef" if x != y)
CALLING_EACH_OTHER = "".join(
    f"def f{i}(a):\n    return {' or '.join(f'f{j}(a)' for j in range(7) if j != i)}\n" for i in range(7)
)
CHAIN = "".join(f"def f{i}(v):\n    return f{i + 1}(v) or f{i + 1}(v)\n" for i in range(14))
WRAP = "model = torch.nn.parallel.DistributedDataParallel(model)\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{ASSIGNED_FROM_EACH_OTHER}model = a\n{WRAP}",
        f"{CALLING_EACH_OTHER}model = f0(net)\n{WRAP}for epoch in range(9):\n    for x in f1(d):\n        model(x)\n",
        f"{CHAIN}if f0(r):\n    dist.barrier()\n",
    ],
    ids=["names", "functions", "chain"],
)
def test_names_that_refer_to_each_other_are_followed_once(text: str) -> None:
    assert timed_review(script(text)) < 3


def test_review_of_many_findings_in_one_function_is_bounded() -> None:
    branches = "".join(f"    if rank == 0:\n        dist.all_reduce(x[{at}])\n" for at in range(100))
    assert timed_review(script(f"def main(rank, x):\n{branches}")) < 8


def test_names_bound_thousands_of_times_are_not_followed() -> None:
    assert timed_review(script("x = 1\nif x:\n    x = dist.get_rank()\n" * 8000)) < 15


def test_names_defined_by_hundreds_of_names_are_reviewed() -> None:
    chain = "".join(f"a{at} = a{(at * 7 + 1) % 300} + a{(at * 11 + 3) % 300}\n" for at in range(300))
    assert timed_review(script(f"{chain}if a0:\n    dist.barrier()\n")) < 8


def test_nested_loops_are_bounded_when_a_patch_is_made() -> None:
    loops = "".join(f"{' ' * (at + 1)}for v{at} in range(9):\n{' ' * (at + 2)}x = v{at}\n" for at in range(60))
    code = f"loader = DataLoader(d, sampler=DistributedSampler(d))\nfor epoch in range(9):\n{loops}"
    code += " for batch in loader:\n  model(batch).backward()\n"
    assert timed_review(script(f"from torch.utils.data import DataLoader, DistributedSampler\n{code}")) < 8


def test_chain_of_thousands_of_functions_is_reviewed() -> None:
    chain = "".join(f"def f{at}():\n    f{at - 1}()\n" for at in range(1, 3000))
    assert timed_review(script(f"def f0():\n    dist.barrier()\n{chain}if rank == 0:\n    f2999()\n")) < 8


def test_chain_of_thousands_of_conditions_is_reviewed() -> None:
    chain = "".join(f"elif kind == {at}:\n    dist.barrier()\n" for at in range(2000))
    last = "if rank == 0:\n    dist.barrier()\n"
    text = script(f"kind = input()\nif not kind:\n    dist.barrier()\n{chain}else:\n    dist.barrier()\n{last}")
    findings, complete = review.review_script(text, "t.py", KNOWLEDGE)
    assert complete
    assert [(each.rule, each.line) for each in findings] == [("DW401", text.count("\n"))]


def test_expression_that_is_too_deep_to_be_parsed_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"cannot be parsed|nested too deeply"):
        review.review_text(script(f"x = {'1+' * 50_000}1\n"), "t.py", KNOWLEDGE)


def test_set_of_elements_as_deep_as_a_value_may_be() -> None:
    code = "".join(
        f"def made_{deep}(a, b):\n" + "    a = a + b\n" * deep + "    return {each + a for each in b}\n"
        f"made_{deep}(1, dist)\n"
        for deep in range(30, 45)
    )
    assert review.review_text(script(code), "t.py", KNOWLEDGE) == []


def test_expression_that_is_too_deep_to_be_followed_is_left_out() -> None:
    findings, complete = review.review_script(script(f"dist.barrier()\nx = {'1+' * 2000}1\n"), "t.py", KNOWLEDGE)
    assert (findings, complete) == ([], False)


REFERRING = """\
import torch.distributed as dist
rank = dist.get_rank()
class Node:
    def __init__(self, parent=None):
        self.parent, self.child = parent, Node(self)
def outer(values):
    class Local:
        def method(self):
            return inner(self)
    def inner(value):
        return outer(value) if value else Local().method()
    total = 0
    for value in values:
        total = total + inner(value)
    match total:
        case 1:
            dist.barrier()
        case _:
            dist.all_reduce(total)
    return total
if rank == 0:
    outer([Node().child])
"""


def test_review_leaves_no_cycles_of_references_behind() -> None:
    review.review_text(REFERRING, "t.py", KNOWLEDGE)
    gc.collect()
    gc.disable()
    try:
        findings = review.review_text(REFERRING, "t.py", KNOWLEDGE)
        assert "DW401" in {finding.rule for finding in findings}
        assert gc.collect() == 0
    finally:
        gc.enable()
