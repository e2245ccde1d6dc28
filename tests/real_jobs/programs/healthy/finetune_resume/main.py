import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import TinyNet
from ckpt import load_checkpoint, save_checkpoint

PATH = "pretrained.pt"


def train(model, steps, lr, seed):
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    g = torch.Generator().manual_seed(seed + dist.get_rank())
    for step in range(steps):
        x = torch.randn(16, 8, generator=g)
        y = x.abs().sum(1, keepdim=True)
        loss = ((model(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)

    pretrain = DDP(TinyNet())
    loss = train(pretrain, steps=20, lr=0.01, seed=10)
    if rank == 0:
        print("pretraining loss", loss)
        save_checkpoint(pretrain, PATH, steps=20)
    dist.barrier()

    net = TinyNet()
    steps = load_checkpoint(net, PATH)
    finetuned = DDP(net)
    loss = train(finetuned, steps=10, lr=0.005, seed=1000)
    if rank == 0:
        print("loss after", steps + 10, "steps:", loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
