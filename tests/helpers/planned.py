"""A plan of a complete setting, without a request."""

from ddpwizard.app.plan.strategies.explain import explain_candidate
from ddpwizard.app.plan.strategies.search import context_of, rank_candidates
from ddpwizard.app.plan.timing.communication import Links
from ddpwizard.app.plan.types import Checkpointing, PlanRow, TrainingSetup

LINKS = Links(370, 90)


def plan_candidates(
    setting: TrainingSetup,
    links: Links = LINKS,
    host_bytes: float | None = None,
    recompute: Checkpointing | None = None,
    nvme_bytes: float | None = None,
) -> list[PlanRow]:
    """Return the ranked candidates of a complete setting with their explanations.

    ``host_bytes`` is the memory of one host, None for the usual one of such a host. A strategy in the setting is
    evaluated without that assumption.
    """
    context = context_of(setting, links, host_bytes)
    rows = rank_candidates(setting, context, recompute, nvme_bytes)
    return [explain_candidate(rows, at, context) for at in range(len(rows))]
