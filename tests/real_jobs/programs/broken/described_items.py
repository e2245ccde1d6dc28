"""Describe the items of a catalogue, each rank every second one, and collect the descriptions on rank 0."""

from pathlib import Path

import torch.distributed as dist

CATALOGUE = Path("catalogue.txt")


def write_catalogue():
    names = ("lamp", "chair", "desk", "shelf", "carpet", "curtain", "mirror")
    CATALOGUE.write_text("".join(f"{name};{len(name) * 10}\n" for name in names))


def read_items():
    with CATALOGUE.open() as file:
        return [line.strip() for line in file]


def describe(item):
    name, price = item.split(";")
    return f"A {name} for {price}."


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        write_catalogue()
    dist.barrier()
    items = read_items()
    descriptions = []
    for item in items[rank::world_size]:
        gathered = [None] * world_size if rank == 0 else None
        dist.gather_object(describe(item), gathered)
        if rank == 0:
            descriptions += gathered
            print(f"{len(descriptions)} of {len(items)}", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return items, descriptions


if __name__ == "__main__":
    items, descriptions = main()
