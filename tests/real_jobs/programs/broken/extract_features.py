"""Compute a feature vector for every record of a folder of shards and merge them into one table."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--shards", type=int, default=8)
parser.add_argument("--records-per-shard", type=int, default=10)
parser.add_argument("--batch-size", type=int, default=4)


class ShardedRecords(Dataset):
    """Records of the shards that belong to this rank."""

    def __init__(self, shards, records_per_shard, rank, world_size):
        self.names = [f"shard-{i:03d}" for i in range(shards)][rank::world_size]
        self.records = [(f"{name}/{j}", hash_vector(name, j)) for name in self.names for j in range(records_per_shard)]

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        return self.records[i]


def hash_vector(name, j):
    return torch.randn(6, generator=torch.Generator().manual_seed(1000 * int(name[-3:]) + j))


@torch.no_grad()
def extract(model, loader):
    table = {}
    for keys, x in loader:
        table.update(zip(keys, model(x), strict=True))
    return table


def main():
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dataset = ShardedRecords(args.shards, args.records_per_shard, rank, world_size)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=False)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    table = extract(model, loader)
    gathered = [None] * world_size
    dist.all_gather_object(gathered, table)
    if rank == 0:
        merged = {key: value for part in gathered for key, value in part.items()}
        torch.save(merged, "features.pt")
        print(f"features of {len(merged)} records")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
