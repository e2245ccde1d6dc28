"""``completion``: the printed script completes in a real shell."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
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
