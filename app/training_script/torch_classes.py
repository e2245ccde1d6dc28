"""The full names by which scripts import classes of torch."""

import re

DDP_CLASSES = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
DATA_PARALLEL = ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
LOADER_CLASSES = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
# Loaders of PyTorch Geometric that draw around the nodes or edges of one graph, with the argument that names these.
GRAPH_LOADERS = {f"torch_geometric.loader.{name}": (2, "input_nodes") for name in ("NeighborLoader", "HGTLoader")} | {
    "torch_geometric.loader.LinkNeighborLoader": (2, "edge_label_index")
}
SAMPLER_CLASSES = ("torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler")
CLIPS = tuple(f"torch.nn.utils.{inner}clip_grad_{kind}_" for inner in ("", "clip_grad.") for kind in ("norm", "value"))
OPTIMIZERS, SCHEDULERS = "torch.optim.", "torch.optim.lr_scheduler."  # what their names begin with
LAYER = re.compile(
    r"(?:Lazy)?(?:Linear|Conv\dd|ConvTranspose\dd|Embedding|Bilinear|LSTM|GRU|(?:Batch|Layer|Group)Norm\d?d?)"
)


def of_torch(name: str) -> str:
    """Return the full name that torch has for a class which another library hands on or derives from it."""
    return SAMPLER_CLASSES[0] if name.rpartition(".")[2] == "DistributedSampler" else name


def is_optimizer(name: str) -> bool:
    """Return whether a full name is that of an optimizer, not of a scheduler."""
    return name.startswith(OPTIMIZERS) and not name.startswith(SCHEDULERS)
