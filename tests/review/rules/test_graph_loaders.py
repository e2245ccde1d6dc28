"""Loaders of PyTorch Geometric that draw around the nodes of one graph: each rank needs nodes of its own."""

import pytest
from helpers.review_snippets import found

SCRIPT = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
data = load()
options = dict(batch_size=32, num_workers=4)
nodes = data.train_mask.nonzero().view(-1)
LOADER
model = DDP(torch.nn.Linear(2, 2))
for epoch in range(3):
    for batch in loader:
        model(batch.x).sum().backward()
"""
FOUND = {
    "all nodes for training": "loader = NeighborLoader(data, input_nodes=nodes, num_neighbors=[5], **options)",
    "a mask of them": "loader = NeighborLoader(data, [5], data.train_mask, shuffle=True)",
    "all edges": "loader = LinkNeighborLoader(data, [5], edge_label_index=data.edge_index)",
}
HEALTHY = {
    "a part for each rank": "loader = NeighborLoader(data, [5], input_nodes=nodes.tensor_split(size)[rank], **options)",
    "a sampler": "loader = NeighborLoader(data, [5], nodes, sampler=torch.utils.data.DistributedSampler(nodes))",
    "options that are not known": "loader = NeighborLoader(data, [5], nodes, **read_options())",
    "an evaluation": "loader = load_parts(rank)\ntest = NeighborLoader(data, [5], nodes)\nfor x in test:\n    print(x)",
}


def script(loader: str) -> str:
    return SCRIPT.replace("LOADER", loader)


@pytest.mark.parametrize("loader", FOUND.values(), ids=FOUND.keys())
def test_nodes_that_every_rank_has_are_found(loader: str) -> None:
    (finding,) = found(script(loader), "DW202")
    assert "same on every rank" in finding.message


@pytest.mark.parametrize("loader", HEALTHY.values(), ids=HEALTHY.keys())
def test_nodes_of_each_rank_are_right(loader: str) -> None:
    assert found(script(loader), "DW202") == []
