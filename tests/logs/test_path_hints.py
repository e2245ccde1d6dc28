"""Ranks, hosts and attempts from the paths of logs."""

import pytest
from ddpwizard.app.logs.path_hints import PathHint, path_hints
from ddpwizard.app.logs.types import Writer


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/logs/none_x1/attempt_1/3/stderr.log", PathHint(Writer(3, local=True), 1)),
        ("/logs/node-2/attempt_0/3/stdout.log", PathHint(Writer(3, "node-2", local=True), 0)),
        ("/logs/rank7.log", PathHint(Writer(7))),
        ("/logs/train_rank_12.out", PathHint(Writer(12))),
        ("/logs/local_rank_2.log", PathHint(Writer(2, local=True))),
        ("/logs/job-worker-1.log", PathHint(Writer(None, "job-worker-1"))),
        ("/logs/train.log", PathHint()),
        ("<stdin>", PathHint()),
    ],
)
def test_path_hint_of_one_path(path: str, place: PathHint):
    assert path_hints([path]) == [place]


def test_number_that_differs_between_files_of_a_folder_is_the_rank():
    assert [p.writer.rank for p in path_hints(["/s/slurm-812_0.out", "/s/slurm-812_1.out", "/s/slurm-812_2.out"])] == [
        0,
        1,
        2,
    ]
    assert [p.writer.rank for p in path_hints(["/s/2026-01.log", "/s/2026-05.log"])] == [None, None]
    assert [p.writer.rank for p in path_hints(["/s/a1.log", "/t/a2.log"])] == [None, None]
