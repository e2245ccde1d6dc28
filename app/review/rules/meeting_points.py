"""DW122: a port for the meeting of the ranks that the script overwrites though the launcher has set it."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from ...training_script.model.reach import Run
from ...training_script.model.sequences import Site
from ...training_script.nodes import node_at, nodes_below
from ..rule_context import Patch, Script, Violation, no_patch
from ..violations import violation_at

PORT = ".MASTER_PORT"
OF_LAUNCHER = ("RANK", "LOCAL_RANK")
OF_TORCHRUN = "29500"  # unless it is given another one
# What starts the ranks itself, or is started by something other than torchrun.
OTHERWISE = re.compile(r"spawn|Process\(|Popen|SLURM|OMPI|PMI_|MPI\b|ray\.|deepspeed|PORT[\w\"']*\]?\s*(?:not )?in ")
FIX = "keep-port-of-launcher"


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the ports that are written out, in a script that takes its rank from the variables of a launcher."""
    if not run.distributed or script.mentions(OTHERWISE) or not _reads_rank(script):
        return
    for reach, fact in run.of(PORT):
        port = fact.values[0].key
        if reach.several and not reach.conditions and port.is_constant and str(port.value) != OF_TORCHRUN:
            yield from violation_at(
                script,
                reach,
                f"the launcher has set MASTER_PORT with the rank, and serves the store there: at port {port.value} all "
                "ranks wait for nobody",
                0.75,
                patch=partial(_kept, script, fact.site) if fact.site.path == script.source.path else None,
            )


def _reads_rank(script: Script) -> bool:
    """Return whether the script needs the rank of a launcher, and sets no such variable itself."""
    reads = False
    for node in nodes_below(script.source.tree):
        match node:
            case ast.Subscript(value=held, slice=ast.Constant(value=str() as name)) if name in OF_LAUNCHER:
                if script.names.qualified(held) != "os.environ":
                    continue
                if not isinstance(node.ctx, ast.Load):
                    return False
                reads = True
            case _:
                pass
    return reads


def _kept(script: Script, site: Site) -> Patch:
    """Return the patch that sets the port only where nothing has set it."""
    source = script.source
    target = node_at(source.tree, site.line, site.column, ast.Subscript)
    stmt = source.parents.get(target) if target else None
    if target is None or not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return no_patch(FIX, 'os.environ.setdefault("MASTER_PORT", …) keeps what the launcher has set')
    code = f"{source.code(target.value)}.setdefault({source.code(target.slice)}, {source.code(stmt.value)})"
    why = "the ranks then meet at the port of the launcher"
    return Patch(id=FIX, safety="unsafe", why_unsafe=why, edits=[source.replace(stmt, code)])
