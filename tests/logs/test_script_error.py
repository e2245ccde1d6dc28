"""An error of the script: which exceptions count as one, and the first line of a diagnosis."""

import pytest
from ddpwizard.app.logs import timeline_chart
from ddpwizard.app.logs.analyse import analyse_logs
from ddpwizard.app.logs.read import source_of_text
from helpers.log_reading_knowledge import KNOWLEDGE

SCRIPT = "/home/me/train.py"
LIBRARY = "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/linear.py"
PEER = "RuntimeError: Connection closed by peer"


def raised(rank: int | None, message: str, *files: str) -> str:
    frames = "".join(f'  File "{file}", line 7, in step\n    x\n' for file in files or (SCRIPT,))
    text = f"Traceback (most recent call last):\n{frames}{message}\n"
    return text if rank is None else "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def read(text: str) -> tuple[str, float]:
    """Return the first line of the diagnosis, and the strength of the finding (0.0: not found)."""
    analysis = analyse_logs([source_of_text(text, "/x.log")], KNOWLEDGE)
    found = next((item for item in analysis.evidence if item.id == "log.script-error"), None)
    assert analysis.timeline
    return timeline_chart.first_failure_sentence(analysis.timeline), found.strength if found else 0.0


def test_the_first_line_names_the_rank_the_error_and_its_place():
    sentence, strength = read(raised(0, PEER) + raised(2, "KeyError: 'image_path'") + raised(1, PEER))
    assert (sentence, strength) == ("Rank 2 failed first: KeyError: 'image_path' at train.py:7 in step", 1.0)


def test_an_error_that_every_rank_shows_names_them_all():
    sentence, strength = read(raised(0, "NameError: x") + raised(1, "NameError: x"))
    assert (sentence, strength) == ("Both ranks failed with the same error: NameError: x at train.py:7 in step", 1.0)


def test_a_log_without_ranks_has_its_first_error_first():
    end = "[E] failed (exitcode: 1) local_rank: 0 (pid: 4) of binary: python\n"
    assert read(raised(None, "ImportError: no x") + end) == (
        "The first error: ImportError: no x at train.py:7 in step",
        1.0,
    )
    assert read(raised(None, "ImportError: no x"))[1] == 0.0, "one process without a launcher"
    of_launcher = raised(None, "DistNetworkError: EADDRINUSE", "/opt/conda/bin/torchrun", LIBRARY)
    assert read(of_launcher) == ("The first error: DistNetworkError: EADDRINUSE", 0.0), "no line of the user's code"


@pytest.mark.parametrize(
    ("message", "files", "strength"),
    [
        ("TypeError: bad operand", (SCRIPT, LIBRARY), 0.8),
        ("RuntimeError: my own check", (SCRIPT,), 1.0),
        ("RuntimeError: an internal state of torch", (SCRIPT, LIBRARY), 0.6),
        ("torch.distributed.DistNetworkError: no way", (SCRIPT,), 0.0),
        ("ConnectionRefusedError: [Errno 111]", (SCRIPT,), 0.0),
        ("RuntimeError: odd thing 3 of 4", (SCRIPT,), 0.0),
    ],
)
def test_an_exception_counts_the_less_the_more_causes_may_explain_it(
    message: str, files: tuple[str, ...], strength: float
):
    assert read(raised(0, PEER) + raised(1, message, *files))[1] == strength


MESH = "/opt/conda/lib/python3.11/site-packages/torch/distributed/device_mesh.py"


@pytest.mark.parametrize(
    ("file", "code", "strength"),
    [
        (MESH, "raise ValueError(", 0.0),
        (MESH.replace("torch/distributed", "accelerate"), "assert mesh is not None, (", 0.0),
        (MESH, "sizes[name]", 0.8),
        (LIBRARY, "raise ValueError(", 0.8),
        (SCRIPT, "raise ValueError(", 1.0),
        ("/home/me/torch_distributed/mesh.py", "assert mesh is not None", 1.0),
    ],
)
def test_a_check_of_a_distributed_library_is_no_error_of_the_script(file: str, code: str, strength: float):
    """Such a library checks how it is used; what it raises by accident is an error of the script."""
    error = raised(1, "ValueError: sizes differ", SCRIPT, file).replace(
        f'{file}", line 7, in step\n[rank1]:     x', f'{file}", line 7, in step\n[rank1]:     {code}'
    )
    assert code in error
    assert read(raised(0, PEER) + error)[1] == strength


def test_a_long_message_is_cut_with_a_sign():
    sentence, _ = read(raised(0, PEER) + raised(1, "ValueError: " + "word " * 40))
    assert "word wo… at train.py:7" in sentence
