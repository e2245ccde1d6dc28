import torch
import torch.distributed as dist
from torch import nn

MICRO_BATCHES = 4


def run_first_stage(stage, inputs):
    sent = []
    for part in inputs.chunk(MICRO_BATCHES):
        output = stage(part)
        dist.send(output.detach(), dst=1)
        sent.append(output)
    for output in sent:
        grad = torch.empty_like(output)
        dist.recv(grad, src=1)
        output.backward(grad)


def run_last_stage(stage, targets):
    received, total = [], 0.0
    for part in targets.chunk(MICRO_BATCHES):
        hidden = torch.empty(len(part), 16)
        dist.recv(hidden, src=0)
        hidden.requires_grad_()
        loss = nn.functional.mse_loss(stage(hidden), part) / MICRO_BATCHES
        loss.backward()
        received.append(hidden)
        total += loss.item()
    for hidden in received:
        dist.send(hidden.grad, dst=0)
    return total


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    stage = nn.Linear(8, 16) if rank == 0 else nn.Linear(16, 1)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    for step in range(5):
        inputs = torch.randn(16, 8)
        optimizer.zero_grad()
        if rank == 0:
            run_first_stage(stage, inputs)
        else:
            print(step, run_last_stage(stage, inputs.sum(1, keepdim=True)))
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
