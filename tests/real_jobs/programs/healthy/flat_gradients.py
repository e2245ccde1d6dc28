import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector


def sync_gradients(model):
    grads = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for grad in grads:
        grad.copy_(flat[start : start + grad.numel()].view_as(grad))
        start += grad.numel()
    return flat.norm()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(5):
        inputs = torch.randn(8, 4)
        loss = F.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        norm = sync_gradients(model)
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} gradient norm {norm.item():.3f}")
    print(f"weight={parameters_to_vector(model.parameters()).sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
