"""The copy of a rank's output: complete, with times, and never in a file of the job."""

import os
import re
import subprocess
import sys
from pathlib import Path

HOOK = Path(__file__).parents[2] / "app" / "agents" / "flight_hook"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} (.*)")
PRINTING = """
import os, sys
sys.path.insert(0, {hook!r})
import ddpwizard_rank
ddpwizard_rank.copy_output()
print("one", 1, "two\\nthree")
sys.stdout.write("10 %\\r20 %\\r")
print("100 %")
if os.fork() == 0:
    print("of the child")
    sys.stdout.flush()
    os._exit(0)
os.wait()
os.closerange(3, 100)
mine = open("mine", "w+b")
print("after")
assert mine.read() == b""
"""


def test_output_is_copied_by_line_and_never_into_a_file_of_the_job(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    code = PRINTING.format(hook=str(HOOK))
    env = {**os.environ, "DDPWIZARD_FLIGHT_DIR": str(private)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "one 1 two"
    copies = {path.read_text() for path in private.glob("*.log")}
    texts = sorted([LINE.fullmatch(line)[1] for line in copy.splitlines()] for copy in copies)  # type: ignore[index]
    assert texts == [["of the child"], ["one 1 two", "three", "100 %", "after"]]
