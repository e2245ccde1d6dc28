"""The programs that the evaluation is tested with do what is claimed of them, on two ranks over gloo."""

from pathlib import Path

import pytest
from helpers.diverging_programs import DIVERGING, SAME, source
from helpers.torchrun_server import run_programs

pytestmark = pytest.mark.jobs


def test_each_program_does_what_is_claimed(tmp_path: Path) -> None:
    programs = [(name, code, True) for name, code in DIVERGING.items()] + [(n, c, False) for n, c in SAME.items()]
    for number, (_, code, diverges) in enumerate(programs):
        # Without a last barrier a rank may end, with the store, before another has started.
        (tmp_path / f"program{number}.py").write_text(source(code) + ("" if diverges else "dist.barrier()\n"))
    codes = run_programs([str(tmp_path)], tmp_path, limit_s=900)
    wrong = [
        (name, codes[f"program{number}.py"])
        for number, (name, _, diverges) in enumerate(programs)
        if any(codes[f"program{number}.py"]) is not diverges
    ]
    assert not wrong
