import torch
import torch.distributed as dist
import torch.nn as nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class GradientSync:
    """Average the gradients in one call per bucket."""

    def __init__(self, parameters, bucket_size=200):
        self.buckets = [[]]
        filled = 0
        for p in parameters:
            if filled + p.numel() > bucket_size and self.buckets[-1]:
                self.buckets.append([])
                filled = 0
            self.buckets[-1].append(p)
            filled += p.numel()
        self.world_size = dist.get_world_size()

    def broadcast_weights(self):
        for bucket in self.buckets:
            for p in bucket:
                dist.broadcast(p.data, src=0)

    def step(self):
        for bucket in self.buckets:
            grads = [p.grad for p in bucket]
            flat = _flatten_dense_tensors(grads)
            dist.all_reduce(flat)
            flat /= self.world_size
            averaged = _unflatten_dense_tensors(flat, grads)
            for grad, mean in zip(grads, averaged):
                grad.copy_(mean)


def make_model():
    return nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = make_model()
    sync = GradientSync(list(model.parameters()))
    sync.broadcast_weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    for step in range(25):
        x = torch.randn(16, 9)
        loss = nn.functional.mse_loss(model(x), x.median(1, keepdim=True).values)
        optimizer.zero_grad()
        loss.backward()
        sync.step()
        optimizer.step()
        if rank == 0 and step % 5 == 0:
            print(f"step {step}: {loss.item():.4f}")
    dist.barrier()
    if rank == 0:
        torch.save(model.state_dict(), "median.pt")
    dist.destroy_process_group()
    return model


if __name__ == "__main__":
    model = main()
