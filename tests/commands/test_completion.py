"""``completion``: the printed script completes in a real shell."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ddpwizard.app.fixes.undo import applied_fixes
from ddpwizard.app.session import Session
from helpers.buggy_script import BUGGY_SCRIPT
from helpers.command import ddpwizard, refused


def completed(shell: list[str], code: str) -> list[str]:
    """Run code in a shell that finds ``ddpwizard``, and return what it prints."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([*shell, code], env=environ, capture_output=True, text=True, timeout=180, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_bash_completes_commands_and_options():
    code = """
    source <(ddpwizard completion bash)
    complete -p ddpwizard > /dev/null || exit 1
    COMP_WORDS=(ddpwizard tr) COMP_CWORD=1
    _ddpwizard_completion ddpwizard && echo "${COMPREPLY[@]}"
    COMPREPLY=() COMP_WORDS=(ddpwizard plan --mod) COMP_CWORD=2
    _ddpwizard_completion ddpwizard && echo "${COMPREPLY[@]}"
    """
    assert completed(["bash", "--norc", "-c"], code) == ["triage", "--model"]


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_completes_commands():
    code = "ddpwizard completion fish | source; complete -C 'ddpwizard tr'"
    assert completed(["fish", "--no-config", "-c"], code)[0] == "triage"


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_takes_the_script():
    code = "autoload -Uz compinit && compinit -D; source <(ddpwizard completion zsh); echo $_comps[ddpwizard]"
    assert completed(["zsh", "-f", "-c"], code) == ["_ddpwizard_completion"]


def test_script_as_json_and_an_unknown_shell():
    document = json.loads(ddpwizard("completion", "zsh", "--json").stdout)
    assert (document["schema"], document["shell"]) == ("ddpwizard.completion/1", "zsh")
    assert "#compdef ddpwizard" in document["script"]
    assert "tcsh" in refused(ddpwizard("completion", "tcsh"), 2)


def in_bash(*words: str) -> list[str]:
    """Return what bash completes the last word to."""
    code = f"""
    source <(ddpwizard completion bash)
    COMP_WORDS=(ddpwizard {" ".join(map(repr, words))}) COMP_CWORD={len(words)}
    _ddpwizard_completion ddpwizard && echo "${{COMPREPLY[@]}}"
    """
    return completed(["bash", "--norc", "-c"], code)


def test_bash_completes_ids():
    session = Session.new(argv=[])
    assert in_bash("sessions", "resume", "") == in_bash("sessions", "export", session.id[:4]) == [session.id]
    assert in_bash("sessions", "export", "no-such") == []
    assert "rank-paused" in in_bash("explain", "rank-")
    assert in_bash("explain", "DW401") == ["DW401"]
    assert "7.2" in in_bash("learn", "7.")


def test_bash_completes_applied_fixes(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text(BUGGY_SCRIPT)
    assert in_bash("undo", "") == []
    assert ddpwizard("review", str(script), "--fix", "--unsafe-fixes").returncode in (0, 1)
    (applied,) = applied_fixes()
    assert in_bash("undo", "") == [applied.id]
    assert ddpwizard("undo", "--yes").returncode == 0
    assert in_bash("undo", "") == []


def test_zsh_and_fish_show_what_a_session_is_about():
    session = Session.new(argv=[])
    session.append("answer", question="symptom", answer="hangs")
    session.append("proof", passed=True, outcome="proved", what="", detail="")
    lines: dict[str, str] = {}
    for shell, index in (("zsh", "3"), ("fish", "")):
        environ = {"_DDPWIZARD_COMPLETE": f"{shell}_complete", "COMP_WORDS": "ddpwizard sessions resume "}
        lines[shell] = ddpwizard(env={**environ, "COMP_CWORD": index}).stdout
    assert lines["zsh"] == f"plain\n{session.id}\nMy job hangs · proved\n"
    assert lines["fish"] == f"plain,{session.id}\tMy job hangs · proved\n"
