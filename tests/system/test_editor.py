"""The command line that opens a file at a line in the user's editor."""

from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.system.editor import editor_command


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({"EDITOR": "vim"}, ["vim", "+34", "FILE"]),
        ({"EDITOR": "emacs -nw", "VISUAL": ""}, ["emacs", "-nw", "+34", "FILE"]),
        ({"EDITOR": "vim", "VISUAL": "/usr/bin/code"}, ["/usr/bin/code", "--wait", "--goto", "FILE:34"]),
        ({"EDITOR": "hx"}, ["hx", "FILE:34"]),
    ],
)
def test_editor_opens_the_file_at_the_line(environ: dict[str, str], command: list[str], tmp_path: Path):
    path = tmp_path / "my train.py"
    path.write_text("")
    assert editor_command(str(path), 34, environ) == [word.replace("FILE", str(path)) for word in command]


def test_file_of_another_machine_is_named():
    with pytest.raises(UserError, match=r"no such file on this machine → open it on the machine of the job"):
        editor_command("/no/such/train.py", 3)
