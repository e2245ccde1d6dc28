"""CTC acoustic model on synthetic filterbanks."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCAB = 20


class Utterances(Dataset):
    def __init__(self, n=96, seed=3):
        rng = random.Random(seed)
        self.items = []
        for _ in range(n):
            frames = rng.randint(12, 40)
            tokens = [rng.randrange(1, VOCAB) for _ in range(rng.randint(3, 12))]
            self.items.append((frames, tokens))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        frames, tokens = self.items[i]
        g = torch.Generator().manual_seed(i)
        return torch.randn(frames, 40, generator=g), torch.tensor(tokens)


def collate(batch):
    feats, toks = zip(*batch)
    flen = torch.tensor([f.size(0) for f in feats])
    tlen = torch.tensor([t.numel() for t in toks])
    return nn.utils.rnn.pad_sequence(feats, batch_first=True), flen, torch.cat(toks), tlen


class AcousticModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = nn.Conv1d(40, 64, 3, stride=2, padding=1)
        self.rnn = nn.GRU(64, 64, batch_first=True)
        self.out = nn.Linear(64, VOCAB)

    def forward(self, x, lens):
        h = torch.relu(self.sub(x.transpose(1, 2))).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1), (lens + 1) // 2


def train_epoch(model, loader, optim, ctc, epoch, rank):
    skipped = 0
    for step, (x, flen, y, ylen) in enumerate(loader):
        logp, olen = model(x, flen)
        loss = ctc(logp.transpose(0, 1), y, olen, ylen)
        bad = (~torch.isfinite(loss)).float()
        dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item() > 0:
            skipped += 1
            optim.zero_grad(set_to_none=True)
            continue
        optim.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optim.step()
        if step % 4 == 0 and rank == 0:
            print(f"epoch {epoch} step {step} ctc {loss.item():.3f}", flush=True)
    return skipped


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = Utterances()
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=4, sampler=sampler, collate_fn=collate)
    model = DistributedDataParallel(AcousticModel())
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ctc = nn.CTCLoss()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        skipped = train_epoch(model, loader, optim, ctc, epoch, rank)
        print(f"[{rank}] epoch {epoch} skipped {skipped}", flush=True)
        dist.barrier()
        if rank == 0:
            torch.save(model.module.state_dict(), f"am_{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
