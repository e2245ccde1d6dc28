import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from stream import LineStream, encode

LINES = [f"record {i}: value {(i * 37) % 101}" for i in range(64)]


def collate(lines):
    encoded = [encode(line) for line in lines]
    targets = torch.tensor([float(line.rsplit(" ", 1)[1]) / 100 for line in lines])
    return torch.stack(encoded), targets, lines


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    stream = LineStream(LINES, rank, world_size)
    loader = DataLoader(stream, batch_size=8, collate_fn=collate)
    model = DDP(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(2):
        consumed = []
        for x, y, lines in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            consumed += lines
        print(f"rank {rank} epoch {epoch}: {len(consumed)} lines, loss {loss.item():.4f}")
    dist.barrier()
    dist.destroy_process_group()
    return consumed


if __name__ == "__main__":
    consumed = main()
