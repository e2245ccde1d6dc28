"""Lines of workers that torchrun has read in parts."""

import pytest
from ddpwizard.app.watchdog.worker_lines import WorkerLines


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        (["[default0]:loss 1.5", "W1128 agent"], ["[default0]:loss 1.5", "W1128 agent"]),
        (["[default0]:used 1 to 1 times[default0]:"], ["[default0]:used 1 to 1 times"]),
        (["[default0]:lo[default0]:ss [default0]:1.5"], ["[default0]:loss 1.5"]),
        (["[default0]:loss 1[default1]:step 3", "[default0]:.5"], ["[default1]:step 3", "[default0]:loss 1.5"]),
        (["[default0]:a[default1]:b", "[default1]:c[default0]:d"], ["[default1]:b", "[default0]:ad", "[default1]:c"]),
        (["agent [default2]:step 3"], ["agent ", "[default2]:step 3"]),
        (["[default0]:", "[default0]:x"], ["[default0]:", "[default0]:x"]),
        (["x[1]: not a prefix"], ["x[1]: not a prefix"]),
    ],
)
def test_a_line_that_was_read_in_parts_is_one_line(printed: list[str], lines: list[str]) -> None:
    worker = WorkerLines()
    assert [line for each in printed for line in worker.add(each)] + worker.rest() == lines
    assert worker.rest() == []
