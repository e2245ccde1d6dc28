"""DW310: post-local SGD, of which nothing averages the models."""

import re
from collections.abc import Iterator

from ...training_script.model.reach import Run
from ...training_script.model.values import Library
from ..rule_context import Script, Violation
from ..violations import violation_at

HOOK = "post_localSGD_hook"
# What averages the models, or may do so.
AVERAGES = re.compile(r"ModelAverager|PostLocalSGDOptimizer|average_param|average_model|\.AVG\b")
OF_PARAMETERS = re.compile(r"(?:all_reduce|broadcast)\w*\([^)\n]*(?:param|weight|\.data\b|\bp\b)")


def check(script: Script, run: Run) -> Iterator[Violation]:
    """Yield the hooks of post-local SGD in a program that averages no models."""
    for reach, fact in run.of(".register_comm_hook"):
        if script.mentions(AVERAGES) or script.mentions(OF_PARAMETERS):
            return
        hook = fact.named.get("hook") or (fact.values[1] if len(fact.values) > 1 else None)
        named = hook is not None and isinstance(hook.obj, Library) and hook.obj.name.endswith(f".{HOOK}")
        if named and reach.several:
            yield from violation_at(
                script,
                reach,
                "from start_localSGD_iter on this hook reduces gradients in the subgroup only, and nothing averages "
                "the models of the subgroups: they drift apart",
                0.85,
            )
