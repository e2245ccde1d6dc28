import torch
import torch.distributed as dist
from torch import nn


class GradientSync:
    """Averages the gradients while the backward pass goes on."""

    def __init__(self, model):
        self.handles = []
        self.world = dist.get_world_size()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.start)

    def start(self, parameter):
        parameter.grad /= self.world
        self.handles.append(dist.all_reduce(parameter.grad))

    def finish(self):
        for handle in self.handles:
            handle.wait()
        self.handles.clear()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    sync = GradientSync(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(5):
        inputs = torch.randn(8, 8, generator=generator)
        loss = model(inputs).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        sync.finish()
        optimizer.step()
    print("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
