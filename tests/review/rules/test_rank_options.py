"""DW110: the option for the local rank that launchers of torch 2 do not pass, and parsers that read the variable."""

from pathlib import Path

import pytest
from ddpwizard.app.review.review import review_text
from helpers.review_snippets import KNOWLEDGE, found, lines, refused, repaired

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


def test_a_number_that_is_used_is_that_of_a_gpu_and_one_that_is_compared_is_not() -> None:
    option = '"--local_rank", type=int, default=0'
    (used,) = found(OPTION.format(option, READ), "DW110")
    (compared,) = found(OPTION.format(option, "if args.local_rank == 0: print()"), "DW110")
    assert (used.cause, compared.cause) == ("local-rank-device", "env-contract-broken")


PARSER = """
import argparse
import os
def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument({})
    return parser.parse_args()
"""
USER = """
import os, torch
import torch.distributed as dist
from options import parse
args = parse()
{}
dist.init_process_group("nccl")
"""
GPUS = {
    "the option": "torch.cuda.set_device(args.local_rank)",
    "at least 0": "torch.cuda.set_device(max(args.local_rank, 0))",
    "in a variable": "gpu = args.local_rank\ntorch.cuda.set_device(gpu)",
    "of these GPUs": "torch.cuda.set_device(args.local_rank % torch.cuda.device_count())",
    "in an attribute": "args.gpu = args.local_rank\ntorch.cuda.set_device(args.gpu)",
}
OPTIONS = {
    "the variable as the default": '"--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0))',
    "both spellings": '"--local_rank", "--local-rank", type=int, default=0',
}


def _of_project(folder: Path, option: str, code: str) -> list[str]:
    (folder / "options.py").write_text(PARSER.format(option))
    text = USER.format(code)
    (folder / "train.py").write_text(text)
    found = review_text(text, str(folder / "train.py"), KNOWLEDGE, ["DW120"])
    return [text.split("\n")[each.line - 1] for each in found]


@pytest.mark.parametrize("code", GPUS.values(), ids=GPUS.keys())
def test_a_gpu_by_an_option_of_another_file_is_found(tmp_path: Path, code: str) -> None:
    (line,) = _of_project(tmp_path, '"--local_rank", type=int, default=-1', code)
    assert line.startswith("torch.cuda.set_device(")


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_an_option_that_has_the_local_rank_is_not(tmp_path: Path, option: str) -> None:
    assert _of_project(tmp_path, option, GPUS["the option"]) == []


def test_a_gpu_by_the_variable_is_not_by_the_option(tmp_path: Path) -> None:
    code = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'
    assert _of_project(tmp_path, '"--local_rank", type=int, default=-1', code) == []
