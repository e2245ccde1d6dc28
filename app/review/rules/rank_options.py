"""DW110, DW120 and DW234: options of the command line for ranks, which launchers do not pass."""

import ast
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ...training_script.model.keys import Key, parts
from ...training_script.model.reach import Run, argument
from ...training_script.nodes import nodes_below
from ...training_script.project_imports import read_module
from ..patches.torch_names import imports_os
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at, violation_at_node

SET = "torch.cuda.set_device"
OF_JOB = ("rank", "global_rank")
OF_NODE, DASHED = "--local_rank", "--local-rank"
# Launchers that pass --local_rank, and scripts that read the variable or start their processes themselves.
OTHERWISE = re.compile(r"""deepspeed|["']LOCAL_RANK["']|local-rank|spawn|Process\(|horovod""")
FIX = "read-local-rank"
# A way to start each rank by hand, or another launcher than torchrun.
BY_HAND = re.compile(r"--rank[ =]\S|MASTER_ADDR|MASTER_PORT|tcp://|SLURM|OMPI|MPI\b")
ON_ONE_GPU = "local-rank-device"  # where the number is used, all processes use the GPU of the default


def check_gpu(script: Script, run: Run) -> Iterator[Violation]:
    """DW120: yield the GPUs that a script chooses by an option of another file, which torchrun does not pass."""
    if not run.distributed or script.mentions(OF_NODE):
        return
    for reach, fact in run.of(SET):
        if script.mentions(OTHERWISE):
            return
        number = argument(fact, 0, "device")
        if number is None or not reach.by_all or not _is_of_option(number.key):
            continue
        if "LOCAL_RANK" in script.evaluated.keys.sources_read or not _has_option(script):
            return
        yield from violation_at(
            script,
            reach,
            "torchrun passes no --local_rank, and torch.distributed.launch passes --local-rank since torch 2: with one "
            "of them every process has the default of the option and uses the same GPU, the other ends in an error",
            0.75,
        )


def _is_of_option(number: Key) -> bool:
    """Return whether a number is the local rank of an option, or computed from it."""
    ranks = [part for part in parts(number) if part.op == "rank"]
    return bool(ranks) and all(part.args == ("local", "") for part in ranks)


def _has_option(script: Script) -> bool:
    """Return whether a module of the program has the option, and none a rank that comes from elsewhere."""
    texts = [read_module(path) or "" for path in script.evaluated.modules if path != Path(script.source.path)]
    return any(OF_NODE in text for text in texts) and not any(map(OTHERWISE.search, texts))


def check_local_rank(script: Script) -> list[Violation]:
    """DW110: return the options for the local rank of which the variable of torchrun is not the default."""
    if not script.mentions(OF_NODE) or script.mentions(OTHERWISE):
        return []
    options: list[ast.Call] = []
    read: list[ast.Attribute] = []
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value="--local_rank")]):
                options.append(node)
            case ast.Attribute(attr="local_rank", ctx=ast.Store()):
                return []
            case ast.Attribute(attr="local_rank", ctx=ast.Load()):
                read.append(node)
            case _:
                pass
    if not (options and read and script.has_ranks) or "LOCAL_RANK" in script.evaluated.keys.sources_read:
        return []
    compared = all(isinstance(script.source.parents[each], ast.Compare) for each in read)
    return [
        violation_at_node(
            option,
            "torchrun passes no --local_rank, and torch.distributed.launch passes --local-rank since torch 2: "
            "with one of them every process has the default, the other ends in an error",
            0.75,
            cause="" if compared else ON_ONE_GPU,
            patch=partial(_by_environment, script, option),
        )
        for option in options
    ]


def _by_environment(script: Script, option: ast.Call) -> Patch:
    """Return the patch that adds the other spelling, and the variable of torchrun as the default."""
    default = next((each.value for each in option.keywords if each.arg == "default"), None)
    if not imports_os(script) or not isinstance(default, ast.Constant | ast.UnaryOp):
        return no_patch(FIX, f'add the spelling "{DASHED}", and the variable LOCAL_RANK as the default')
    number = script.source.code(default)
    read = f'int(os.environ.get("LOCAL_RANK", {number}))'
    if isinstance(default, ast.Constant) and default.value is None:
        return no_patch(FIX, f'add the spelling "{DASHED}", and read LOCAL_RANK where the option is not given')
    flag = option.args[0]
    edits = [
        script.source.replace(flag, f'{script.source.code(flag)}, "{DASHED}"'),
        script.source.replace(default, read),
    ]
    why = "where LOCAL_RANK is set for something else, the script takes it for a rank"
    return Patch(id=FIX, safety="unsafe", why_unsafe=why, edits=edits)


def _is_of_launcher(script: Script, init: ast.Call) -> bool:
    """Return whether a process group meets where a launcher says, with a rank that is an option of the command line.

    A script that is started by hand with ``--rank`` says how, or gives an address of its own.
    """
    given = {each.arg: each.value for each in init.keywords}
    address = given.get("init_method")
    of_launcher = address is None or (isinstance(address, ast.Constant) and address.value == "env://")
    of_options = all(isinstance(given.get(name), ast.Attribute) for name in ("rank", "world_size"))
    return of_launcher and of_options and "store" not in given and not script.mentions(BY_HAND)


def check_option(script: Script) -> list[Violation]:
    """DW234: return the reads of a rank that is the default of an option, which no launcher passes."""
    text = script.source.text
    if "init_process_group" not in text or "spawn" in text or "Process(" in text:
        return []
    options: dict[str, ast.Call] = {}
    read: dict[str, list[ast.Attribute]] = {}
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=[ast.Constant(value=str() as flag), *_]):
                default = next((each.value for each in node.keywords if each.arg == "default"), None)
                name = flag.lstrip("-").replace("-", "_")
                if name in OF_JOB and isinstance(default, ast.Constant) and default.value == 0:
                    options[name] = node
            case ast.Call(func=ast.Attribute(attr="init_process_group"), keywords=keywords) if any(
                each.arg in ("rank", None) for each in keywords
            ):
                if not _is_of_launcher(script, node):
                    return []
            case ast.Attribute(attr=name, ctx=ast.Store()) if name in OF_JOB:
                return []
            case ast.Attribute(attr=name, ctx=ast.Load(), value=ast.Name()) if name in OF_JOB:
                read.setdefault(name, []).append(node)
            case _:
                pass
    found: list[Violation] = []
    for name in options:
        if not read.get(name):
            continue
        first = read[name][0]
        found.append(
            violation_at_node(
                first,
                f"`{script.source.one_line(first)}` is 0 on every rank: torchrun passes no --{name}, "
                "and nothing else sets it",
                0.75,
            )
        )
    return found
