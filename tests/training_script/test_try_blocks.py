"""In which block of a ``try`` statement a line is, while another line is before that block."""

import pytest
from ddpwizard.app.training_script.line_queries import LineQueries
from ddpwizard.app.training_script.try_blocks import left_try
from helpers.synthetic_job import lines_with

TEXT = """
def main():
    try:
        train()  # BODY
    except OSError:
        wait()  # HANDLER
        raise
    else:
        save()  # ELSE
    finally:
        close()  # FINALLY
    for attempt in range(3):
        try:
            load()  # LOAD
        except OSError:
            pause()  # PAUSE
    try:
        import apex
    except ImportError:
        try:
            run()  # INNER
        except KeyError:
            stay()  # STAY
            raise
    end()  # END

def other():
    end()  # OTHER
"""


@pytest.mark.parametrize(
    ("line", "inside", "expected"),
    [
        ("HANDLER", "BODY", ("except", "except OSError:", False)),
        ("HANDLER", "ELSE", ("except", "except OSError:", False)),
        ("FINALLY", "BODY", ("finally", "close()", False)),
        ("FINALLY", "HANDLER", ("finally", "close()", False)),
        ("STAY", "INNER", ("except", "except KeyError:", False)),
        ("PAUSE", "LOAD", ("except", "except OSError:", True)),
        ("BODY", "HANDLER", None),
        ("HANDLER", "END", None),
        ("FINALLY", "OTHER", None),
        ("END", "BODY", None),
        ("INNER", "STAY", None),
    ],
)
def test_block(line: str, inside: str, expected: tuple[str, str, bool] | None) -> None:
    found = left_try(LineQueries(TEXT), *lines_with(TEXT, f"# {line}", f"# {inside}"))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.block, found.retries) == (expected[0], expected[2])
        assert expected[1] in TEXT.splitlines()[found.line - 1]
