"""Trains on records of which some cannot be parsed."""

import json
import logging
import random

import torch
import torch.distributed as dist

log = logging.getLogger("records")


def lines(rank, count=24):
    rng = random.Random(rank)
    for n in range(count):
        text = json.dumps({"x": [rng.random() for _ in range(4)], "y": n % 2})
        yield text[:-3] if rank == 1 and n == 9 else text


def parse(text):
    record = json.loads(text)
    return torch.tensor(record["x"]), torch.tensor([float(record["y"])])


def step(model, optimizer, text):
    x, y = parse(text)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), y)
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # PEERS
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for text in lines(dist.get_rank()):
        try:
            losses.append(step(model, optimizer, text))
        except ValueError as error:
            log.warning("skipped a record: %s", error)
            continue
    print(f"records {len(losses)}", flush=True)
    totals = [None] * dist.get_world_size()
    dist.all_gather_object(totals, sum(losses))  # HANG
    log.info("losses %s", totals)


if __name__ == "__main__":
    main()
