"""The weight of a finding that matters between nodes: none if the job runs on one."""

from collections.abc import Collection, Sequence

import msgspec

from ...knowledge.schema import Knowledge
from ..evidence import Evidence, answer_id, verdict_id

ONE_NODE, SEVERAL_NODES = answer_id("how-many-nodes", "one"), answer_id("how-many-nodes", "several")
MAY_BE_LOCAL = 0.5  # share of a finding that matters between nodes, if the number of nodes is not known


def scale_by_scope(evidence: Sequence[Evidence], knowledge: Knowledge, rejected: Collection[str]) -> list[Evidence]:
    """Return the evidence with the strength that its scope leaves it.

    A verdict on a cause that the user has rejected is left out.
    """
    between = {f"{probe}.{name}" for probe, spec in knowledge.probes.items() for name in spec.between_nodes}
    kept = [item for item in evidence if item.id not in {verdict_id(cause) for cause in rejected}]
    on_nodes = _share_between_nodes(kept)
    scaled: list[Evidence] = []
    for item in kept:
        share = on_nodes if item.id in between else 1.0
        if share:
            scaled.append(msgspec.structs.replace(item, strength=item.strength * share) if share < 1.0 else item)
    return scaled


def _share_between_nodes(evidence: Sequence[Evidence]) -> float:
    """Return how much a finding that matters between nodes weighs: by the job, else by the user's answer."""
    known = [item for item in evidence if item.id in (ONE_NODE, SEVERAL_NODES)]
    if not known:
        return MAY_BE_LOCAL
    best = next((item for item in known if item.source == "job"), known[-1])
    return 0.0 if best.id == ONE_NODE else 1.0
