"""Trains with Accelerate."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def evaluate(accelerator, model, loader):
    right = []
    for x, y in loader:
        guess = accelerator.unwrap_model(model)(x).argmax(-1)
        right.append(accelerator.gather((guess == y).float()))  # HANG
    return torch.cat(right).mean().item()


def main():
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8, shuffle=True))
    held_out = DataLoader(data, batch_size=32)
    for epoch in range(2):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}", flush=True)
        if accelerator.is_local_main_process:  # BRANCH
            accelerator.print("accuracy", evaluate(accelerator, model, held_out))
        accelerator.wait_for_everyone()  # PEERS
        accelerator.save_state(f"state{epoch}")


if __name__ == "__main__":
    main()
