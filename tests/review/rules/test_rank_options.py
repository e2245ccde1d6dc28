"""DW110: the option for the local rank that launchers of torch 2 do not pass, and parsers that read the variable."""

import pytest
from helpers.review_snippets import lines, refused, repaired

OPTION = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument({})
args = parser.parse_args()
{}
dist.init_process_group("nccl")
"""
READ = "torch.cuda.set_device(args.local_rank)"
FOUND = {
    "a default for one process": ('"--local_rank", type=int, default=0', READ),
    "no rank as the default": ('"--local_rank", type=int, default=-1', READ),
    "no default": ('"--local_rank", type=int', READ),
}
SILENT = {
    "the variable as the default": ('"--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0))', READ),
    "the variable instead of the option": (
        '"--local_rank"',
        'args.local_rank = int(os.environ["LOCAL_RANK"])\n' + READ,
    ),
    "an option that nothing reads": ('"--local_rank", default=0', ""),
    "both spellings": ('"--local_rank", "--local-rank", type=int, default=0', READ),
    "the launcher of DeepSpeed": ('"--local_rank", default=0', READ + "\nimport deepspeed"),
}


@pytest.mark.parametrize("name", FOUND)
def test_an_option_that_stays_at_its_default_is_found(name: str) -> None:
    assert lines(OPTION.format(*FOUND[name]), "DW110") == [f"parser.add_argument({FOUND[name][0]})"]


@pytest.mark.parametrize("name", SILENT)
def test_a_script_that_has_its_local_rank_is_not(name: str) -> None:
    assert lines(OPTION.format(*SILENT[name]), "DW110") == []


@pytest.mark.parametrize("default", ["0", "-1"])
def test_the_variable_becomes_the_default(default: str) -> None:
    after = repaired(OPTION.format(f'"--local_rank", type=int, default={default}', READ), "DW110")
    read = f'int(os.environ.get("LOCAL_RANK", {default}))'
    assert f'add_argument("--local_rank", "--local-rank", type=int, default={read})' in after


def test_without_a_default_there_is_no_patch() -> None:
    assert "LOCAL_RANK" in refused(OPTION.format(*FOUND["no default"]), "DW110")
