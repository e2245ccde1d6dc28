"""The texts around the parts of a lab: the next keys, and code with its numbers."""

from pathlib import Path

from ddpwizard.app.labs.lab_proof import LabProof
from ddpwizard.app.labs.lab_session import LabSession
from ddpwizard.app.labs.phrases import numbered_code
from ddpwizard.knowledge.labs import read_labs
from ddpwizard.screens.learn.lab_parts import next_keys
from helpers.built_in_knowledge import built_in_knowledge

CODE = """\
import torch
    from torch.utils.data import DataLoader, TensorDataset
"""


def test_a_refused_proof_names_the_way_to_the_fix(tmp_path: Path) -> None:
    session = LabSession(read_labs()["missing-set-epoch"], built_in_knowledge(), "python", tmp_path)
    session.script.write_text("print('mine')\n")
    session.progress.answered = session.progress.failed = True
    assert next_keys(session, "story") == "v: prove it · e: edit · x: restore the files"
    session.proof = LabProof(outcome="another result", what="")
    assert next_keys(session, "story").endswith("x: restore the files, then a: the fix of the wizard")


def test_a_long_line_of_code_goes_on_below_its_text() -> None:
    first, second = CODE.splitlines()
    assert numbered_code(CODE, 0) == [f"   1  {first}", f"   2  {second}"]
    assert numbered_code(CODE, 50) == [
        f"   1  {first}",
        "   2      from torch.utils.data import DataLoader,",
        "              TensorDataset",
    ]
