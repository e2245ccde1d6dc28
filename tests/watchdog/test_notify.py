"""The report file and the user's command."""

import os
import sys
from pathlib import Path

import pytest
from ddpwizard.app.errors import UserError
from ddpwizard.app.watchdog import notify


def test_report_file_is_json_or_text(tmp_path: Path) -> None:
    assert notify.write_report(tmp_path / "r.json", b"{}\n", ["one"]) == f"report: {tmp_path / 'r.json'}"
    notify.write_report(tmp_path / "r.md", b"{}\n", ["one", "two"])
    assert ((tmp_path / "r.json").read_text(), (tmp_path / "r.md").read_text()) == ("{}\n", "one\ntwo\n")
    assert "cannot write" in notify.write_report(tmp_path / "none" / "r.md", b"", [])


def test_command_is_split_into_words() -> None:
    assert notify.split_command("mail -s 'it hangs' me") == ["mail", "-s", "it hangs", "me"]
    for wrong in ("mail 'x", "  "):
        with pytest.raises(UserError):
            notify.split_command(wrong)


def test_command_gets_the_document_and_does_not_write_to_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import sys; print('seen', len(sys.stdin.read())); sys.exit(int(sys.argv[1]))"
    assert notify.run_hook([sys.executable, "-c", code, "0"], b"x" * 100_000) == ""
    assert "ended with code 3" in notify.run_hook([sys.executable, "-c", code, "3"], b"")
    assert "cannot be started" in notify.run_hook([str(tmp_path / "none")], b"")
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"seen 100000{os.linesep}seen 0{os.linesep}")


def test_command_that_reads_nothing_is_no_error() -> None:
    assert notify.run_hook(["true"], b"x" * 1_000_000) == ""
