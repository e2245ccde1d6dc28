"""The manual page: it is the one of the present help texts, and ``man`` renders it."""

import shutil
import subprocess

import pytest
from ddpwizard.cli import COMMANDS
from make_man_page import PAGE, man_page


def test_the_page_is_the_one_that_is_kept():
    assert PAGE.read_text() == man_page(), "make man"


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_groff_renders_it_without_a_warning():
    done = subprocess.run(
        ["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-P-c", "-P-b", "-P-u", str(PAGE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    for name in COMMANDS:
        assert f"\n   ddpwizard {name} " in done.stdout
    assert "\n       Examples:\n         ddpwizard diagnose train.log\n" in done.stdout
    lines = " ".join(done.stdout.replace("‐\n", "").split())
    for part in (
        "--unsafe-fixes",
        "kb new [OPTIONS] ID",
        "torchrun --nproc-per-node=4 train.py 2>&1 | ddpwizard",
        "130",
    ):
        assert part in lines
