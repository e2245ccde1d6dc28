"""Cost of collectives: exact values for few ranks, and properties for any number."""

import pytest
from ddpwizard.app.plan.timing.communication import (
    NETWORK_HOP_S,
    NVLINK_HOP_S,
    START_S,
    TREE_SHARE,
    CollectiveGroup,
    Links,
    all_reduce_s,
    bandwidth_gbps,
    broadcast_s,
    ring_pass_s,
)
from hypothesis import given
from hypothesis import strategies as st

LINKS = Links(100.0, 50.0)
BYTES = st.floats(1, 1e12)
GROUPS = st.builds(
    lambda nodes, per_node, sharers: CollectiveGroup(nodes * per_node, nodes, sharers),
    st.integers(1, 64),
    st.integers(1, 16),
    st.integers(1, 8),
)
RATES = st.floats(0.1, 2000)
COSTS = (ring_pass_s, all_reduce_s, broadcast_s)


class TestByHand:
    def test_two_ranks_send_half_per_pass(self) -> None:
        """1 GB at 100 GB/s: each sends half of it, once to gather, twice to reduce for all."""
        assert ring_pass_s(1e9, CollectiveGroup(2), LINKS) == pytest.approx(START_S + NVLINK_HOP_S + 0.5 / 100)
        assert all_reduce_s(1e9, CollectiveGroup(2), LINKS) == pytest.approx(START_S + 2 * NVLINK_HOP_S + 1 / 100)
        assert broadcast_s(1e9, CollectiveGroup(2), LINKS) == pytest.approx(START_S + NVLINK_HOP_S + 1 / 100)

    def test_eight_ranks_of_one_node(self) -> None:
        assert all_reduce_s(8e9, CollectiveGroup(8), LINKS) == pytest.approx(START_S + 14 * NVLINK_HOP_S + 2 * 7 / 100)

    def test_two_nodes_have_one_hop_between_them_at_adapter_speed(self) -> None:
        hops = 6 * NVLINK_HOP_S + NETWORK_HOP_S
        assert ring_pass_s(8e9, CollectiveGroup(8, 2), LINKS) == pytest.approx(START_S + hops + 7 / 50)

    def test_groups_share_the_adapters_of_a_node(self) -> None:
        """The copies of hybrid sharding: one rank of each node in a group, four groups at a time."""
        assert bandwidth_gbps(CollectiveGroup(2, 2, 4), LINKS) == pytest.approx(12.5)
        assert bandwidth_gbps(CollectiveGroup(2, 2), Links(10, 50)) == 50  # nothing of it goes between GPUs of a node

    def test_tree_is_faster_for_small_messages_on_many_nodes(self) -> None:
        group = CollectiveGroup(512, 64)
        ring_s = START_S + 2 * (448 * NVLINK_HOP_S + 63 * NETWORK_HOP_S)
        tree_s = START_S + 2 * (7 * NVLINK_HOP_S + 6 * NETWORK_HOP_S) + 2 * 1000 / (50e9 * TREE_SHARE)
        assert all_reduce_s(1000, group, LINKS) == pytest.approx(tree_s)
        assert tree_s < ring_s

    @pytest.mark.parametrize("cost", COSTS)
    def test_single_rank_communicates_for_free(self, cost: "object") -> None:
        assert cost(1e9, CollectiveGroup(1), LINKS) == 0.0  # type: ignore[operator]


@given(BYTES, GROUPS, RATES, RATES, st.floats(1, 100))
def test_more_bandwidth_is_never_slower(
    size: float, group: CollectiveGroup, intra: float, inter: float, more: float
) -> None:
    for cost in COSTS:
        now = cost(size, group, Links(intra, inter))
        assert cost(size, group, Links(intra * more, inter)) <= now
        assert cost(size, group, Links(intra, inter * more)) <= now
        assert cost(size, group, Links(intra * more, inter * more)) <= now


@given(BYTES, GROUPS, RATES, RATES)
def test_more_bytes_or_passes_are_never_faster(size: float, group: CollectiveGroup, intra: float, inter: float) -> None:
    links = Links(intra, inter)
    for cost in COSTS:
        assert cost(size, group, links) <= cost(2 * size, group, links)
    assert ring_pass_s(size, group, links) <= all_reduce_s(size, group, links) * (1 + 1e-9) or group.ranks > 2


@given(BYTES, st.integers(2, 1024), RATES)
def test_bus_bandwidth_of_large_messages_is_that_of_the_link(size: float, ranks: int, rate: float) -> None:
    """As nccl-tests defines it: bytes over time, times what share of them each rank sends."""
    took = ring_pass_s(size, CollectiveGroup(ranks), Links(rate, rate))
    seen = size / took * (ranks - 1) / ranks / 1e9
    assert seen <= rate * (1 + 1e-9)
    assert ring_pass_s(1e15, CollectiveGroup(ranks), Links(rate, rate)) == pytest.approx(
        1e15 * (ranks - 1) / ranks / rate / 1e9, rel=0.1
    )
