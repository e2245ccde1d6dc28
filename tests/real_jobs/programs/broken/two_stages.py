import torch
import torch.distributed as dist
from torch import nn

BATCH, DIM, HIDDEN = 16, 6, 12
EPOCHS, STEPS, EVAL_EVERY = 6, 4, 3


def data(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, DIM, generator=g)
    return x, (x[:, 0] + x[:, 1] > 0).long()


class FirstStage:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(DIM, HIDDEN), nn.ReLU())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def train_step(self, seed):
        hidden = self.net(data(seed)[0])
        dist.send(hidden.detach(), dst=1)
        grad = torch.empty_like(hidden)
        dist.recv(grad, src=1)
        self.optimizer.zero_grad()
        hidden.backward(grad)
        self.optimizer.step()

    def eval_step(self, seed):
        with torch.no_grad():
            dist.send(self.net(data(seed)[0]), dst=1)

    def run(self):
        for epoch in range(EPOCHS):
            for step in range(STEPS):
                self.train_step(epoch * STEPS + step)
            if (epoch + 1) % EVAL_EVERY == 0:
                self.eval_step(1000)


class SecondStage:
    def __init__(self):
        self.net = nn.Linear(HIDDEN, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def receive(self):
        hidden = torch.empty(BATCH, HIDDEN)
        dist.recv(hidden, src=0)
        return hidden

    def train_step(self, seed):
        hidden = self.receive().requires_grad_()
        loss = nn.functional.cross_entropy(self.net(hidden), data(seed)[1])
        self.optimizer.zero_grad()
        loss.backward()
        dist.send(hidden.grad, dst=0)
        self.optimizer.step()

    def eval_step(self, seed):
        with torch.no_grad():
            hits = self.net(self.receive()).argmax(1) == data(seed)[1]
        print("accuracy", hits.float().mean().item(), flush=True)

    def run(self):
        for epoch in range(EPOCHS):
            for step in range(STEPS):
                self.train_step(epoch * STEPS + step)
            if epoch % EVAL_EVERY == 0:
                self.eval_step(1000)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    stage = FirstStage() if dist.get_rank() == 0 else SecondStage()
    stage.run()
    dist.barrier()
    dist.destroy_process_group()
