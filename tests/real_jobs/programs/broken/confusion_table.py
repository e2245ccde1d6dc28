"""Each rank scores its share of a test set; all of them collect the labels for a table of confusions."""

import torch
import torch.distributed as dist


def samples(seed, count):
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 4, generator=draw)
    return rows, rows.argmax(dim=1)


def share(rows, labels, rank, size):
    return rows[rank::size], labels[rank::size]


def collected(labels):
    parts = [torch.zeros_like(labels) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, labels)
    return torch.cat(parts)


dist.init_process_group("gloo")
place = dist.get_rank(), dist.get_world_size()
known_rows, known_labels = share(*samples(1, 64), *place)
test_rows, test_labels = share(*samples(2, 45), *place)
means = torch.stack([known_rows[known_labels == each].mean(dim=0) for each in range(4)])
guesses = torch.cdist(test_rows, means).argmin(dim=1)
print((guesses == test_labels).float().mean().item(), len(collected(test_labels)))
dist.barrier()
dist.destroy_process_group()
