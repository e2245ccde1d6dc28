"""Conditions that the programs must meet when they have ended: both of a pair have the same.

Each check is named as its program. It is called on each rank, in the program's working directory, with the globals of
the program, and raises AssertionError where the program trained wrongly.
"""

import itertools
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

RANK = int(os.environ["RANK"])
CALLS = itertools.count()
Names = dict[str, Any]


def of_both_ranks(value: torch.Tensor) -> list[torch.Tensor]:
    """Return the value of each rank."""
    call = next(CALLS)
    torch.save(value, f"unfinished-{RANK}")
    Path(f"unfinished-{RANK}").rename(f"check-{call}-{RANK}")
    paths = [Path(f"check-{call}-{rank}") for rank in range(2)]
    while not all(path.exists() for path in paths):
        time.sleep(0.01)
    return [torch.load(path) for path in paths]


def flat(parameters: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return all values of the parameters as one tensor."""
    return torch.cat([p.detach().flatten() for p in parameters])


def assert_same_on_both_ranks(model: nn.Module) -> None:
    """Both ranks have the same parameters."""
    first, second = of_both_ranks(flat(model.parameters()))
    assert torch.equal(first, second)


def assert_close(model: nn.Module, reference: nn.Module) -> None:
    """The parameters are those of the reference that one process trained."""
    torch.testing.assert_close(flat(model.parameters()), flat(reference.parameters()), rtol=1e-4, atol=1e-5)


def log() -> str:
    """Return what this rank has printed."""
    return Path(f"{RANK}.log").read_text()


def resume_finetune(names: Names) -> None:
    assert_same_on_both_ranks(names["trained"])


def epoch_callbacks(names: Names) -> None:
    orders = re.findall(r"order (.*)", log())
    assert len(set(orders)) == len(orders) == 3


def extract_features(names: Names) -> None:
    assert len(torch.load("features.pt")) == 80


def accuracy_report(names: Names) -> None:
    model, (x, y) = names["net"], names["data"].tensors
    expected = (model(x).argmax(1) == y).double().mean().item()
    printed = re.search(r'"accuracy": ([\d.]+)', Path("result.json").read_text())
    assert printed
    assert abs(float(printed[1]) - expected) < 1e-9


def linear_probe(names: Names) -> None:
    config = names["config"]
    reference, (x, y) = names["build_probe"](config), names["cached_features"](config).tensors
    optimizer = torch.optim.SGD(reference.parameters(), lr=config.lr)
    for _ in range(config.epochs):
        for inputs, labels in zip(x.split(config.global_batch), y.split(config.global_batch), strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(reference(inputs), labels).backward()
            optimizer.step()
    assert_close(names["probe"], reference)


def accumulate_steps(names: Names) -> None:
    assert_same_on_both_ranks(names["final"])


def plain_data_parallel(names: Names) -> None:
    reference, optimizer = names["build"]()
    for step in range(15):
        x, y = names["global_batch"](step)
        optimizer.zero_grad()
        functional.mse_loss(reference(x), y).backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
        optimizer.step()
    assert_close(names["result"], reference)


def rank_correlation(names: Names) -> None:
    model, (x, y) = names["scorer"], names["data"].tensors
    expected = names["spearman"](model(x).squeeze(1).detach(), y)
    assert RANK or f"{len(y)} predictions, correlation {expected:.6f}" in log()


def bandit_policy(names: Names) -> None:
    first, second = of_both_ranks(names["rounds"])
    assert not torch.equal(first, second)


def sharded_autoencoder(names: Names) -> None:
    losses = names["losses"]
    assert losses[-1] < 0.7 * losses[0]


def overlapped_metrics(names: Names) -> None:
    means = torch.stack(of_both_ranks(torch.tensor(names["local_losses"]))).mean(0)
    rows = json.loads(Path("log.json").read_text())
    torch.testing.assert_close(torch.tensor([row["loss"] for row in rows]), means)


def contrastive_encoder(names: Names) -> None:
    assert_same_on_both_ranks(names["encoder"])


def two_stage_training(names: Names) -> None:
    assert names["resumed_loss"] < (names["first_loss"] + names["trained_loss"]) / 2


def plateau_schedule(names: Names) -> None:
    assert_same_on_both_ranks(names["fitted"])


def held_out_split(names: Names) -> None:
    held_out = [set(part.tolist()) for part in of_both_ranks(torch.tensor(names["val_ids"]))]
    assert not held_out[1 - RANK] & set(names["train_ids"])


def best_of_epochs(names: Names) -> None:
    assert_same_on_both_ranks(names["restored"])


def signal_error(names: Names) -> None:
    model, data = names["network"], names["signals"]
    expected = (model(data.x).squeeze(1) - data.y).abs().mean().item()
    assert abs(names["reported"] - expected) < 1e-6


def masked_tokens(names: Names) -> None:
    reference = names["build"]()
    optimizer = torch.optim.SGD(reference.parameters(), lr=names["LR"])
    for step in range(names["STEPS"]):
        ids, masked = names["global_batch"](step)
        optimizer.zero_grad()
        (names["summed_loss"](reference, ids, masked) / masked.sum()).backward()
        optimizer.step()
    assert_close(names["masked_model"], reference)


def feature_statistics(names: Names) -> None:
    first, second = of_both_ranks(names["reference_value"])
    torch.testing.assert_close(first, second)


def activation_relay(names: Names) -> None:
    torch.testing.assert_close(names["microbatch_means"], torch.tensor([0.5, 1.0, 1.5, 2.0]))


def transfer_head(names: Names) -> None:
    assert_same_on_both_ranks(names["transferred"])


def token_throughput(names: Names) -> None:
    documents = names["DOCUMENTS"]
    expected = [
        sum(names["bigram"].loss(document) for document in read) / sum(len(document) - 1 for document in read)
        for read in (documents, documents[:1])
    ]
    torch.testing.assert_close(torch.tensor(names["reported"]), torch.tensor(expected))


def first_rank_weights(names: Names) -> None:
    assert_same_on_both_ranks(names["worker"].model)


def low_rank_adapters(names: Names) -> None:
    assert_same_on_both_ranks(names["adapted"])


def random_search(names: Names) -> None:
    assert_same_on_both_ranks(names["winner"])


def per_class_recall(names: Names) -> None:
    x, labels = names["samples"]()
    predicted = names["classifier"](x).argmax(1)
    expected = {
        name: (predicted[labels == label] == label).double().mean().item() for label, name in enumerate(names["NAMES"])
    }
    assert json.loads(Path("recall.json").read_text()) == expected


def spiral_classifier(names: Names) -> None:
    seen = torch.cat(of_both_ranks(torch.tensor(names["seen_ids"])))
    assert seen.bincount().tolist() == [names["epochs"]] * 64


def assert_seen_once(samples: Iterable[int], count: int) -> None:
    """The ranks have seen each of so many samples once; one may be repeated to make their parts equal."""
    seen = torch.cat(of_both_ranks(torch.tensor([*samples])))
    assert seen.unique().tolist() == list(range(count))
    assert len(seen) <= count + 1


def mlp_epochs(names: Names) -> None:
    assert len({tuple(order) for order in names["orders"]}) == len(names["orders"])


def digits_ddp(names: Names) -> None:
    assert_seen_once(names["seen"], 200)


def manual_sync(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])
    x, y, steps, lr = names["problem"]
    reference = type(names["model"])()
    with torch.no_grad():
        for parameter, start in zip(reference.parameters(), names["start"], strict=True):
            parameter.copy_(start)
    optimizer = torch.optim.SGD(reference.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.mse_loss(reference(x), y).backward()
        optimizer.step()
    assert_close(names["model"], reference)


def accumulate_nosync(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])


def report_accuracy(names: Names) -> None:
    x, y = names["val_set"].tensors
    with torch.no_grad():
        expected = (names["model"](x).argmax(1) == y).float().mean().item()
    assert abs(expected - names["accuracy"]) < 1e-5


def linear_scaling(names: Names) -> None:
    config = names["config"]
    assert abs(names["lr"] / (names["per_rank_batch"] * 2) - config.lr / config.base_batch) < 1e-9


def gradual_unfreeze(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])


def feature_extractor(names: Names) -> None:
    assert_same_on_both_ranks(names["trainer"].net)


def fsdp_pretrain(names: Names) -> None:
    assert names["losses"][-1] < 0.7 * names["losses"][0]


def error_rate(names: Names) -> None:
    x, y = names["val_set"].tensors
    with torch.no_grad():
        errors = ((names["model"](x).squeeze(1) > 0) != y.bool()).sum().item()
    assert (errors, len(x)) == (names["wrong"], names["total"])


def text_stream(names: Names) -> None:
    assert_seen_once([int(line.split(":")[0].split()[1]) for line in names["consumed"]], 64)


def split_and_train(names: Names) -> None:
    trained, validated = (set[int](), set[int]())
    for train, validation in zip(
        *(of_both_ranks(torch.tensor(names[each].indices)) for each in ("train_set", "val_set")), strict=True
    ):
        trained |= set(train.tolist())
        validated |= set(validation.tolist())
    assert not trained & validated


def node_sampler(names: Names) -> None:
    assert_seen_once(names["last_epoch"], 100)


def cosine_decay(names: Names) -> None:
    assert names["final_lr"] < 0.01 * names["cfg"]["lr"]


def flat_buckets(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])


def merged_predictions(names: Names) -> None:
    assert sorted(names["merged"]) == list(range(140))


def printed(name: str) -> torch.Tensor:
    """Return the number that this rank has printed under a name."""
    found = re.search(rf"\b{name}=(-?[\d.]+)", log())
    assert found
    return torch.tensor(float(found[1]))


def assert_printed_alike(name: str) -> None:
    """Both ranks have printed the same number."""
    first, second = of_both_ranks(printed(name))
    torch.testing.assert_close(first, second)


def moving_average(_: Names) -> None:
    assert_printed_alike("ema")


def row_parallel(_: Names) -> None:
    assert printed("error") < 1e-5


def flat_gradients(_: Names) -> None:
    assert_printed_alike("weight")


def plateau_rates(_: Names) -> None:
    assert_printed_alike("lr")


def sharded_save(names: Names) -> None:
    assert printed("restored") == sum(p.numel() for p in names["build"]().parameters())


def bandit_rollouts(_: Names) -> None:
    first, second = of_both_ranks(printed("first"))
    assert first != second


def row_parts(names: Names) -> None:
    rows = torch.cat(of_both_ranks(names["mine"]))
    assert len(rows) == len(rows.unique(dim=0)) == 64


def late_wait(names: Names) -> None:
    torch.manual_seed(0)
    reference = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(reference.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        reference(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()
    assert_close(names["model"], reference)


def part_loaders(names: Names) -> None:
    assert len({tuple(order) for order in names["orders"]}) == len(names["orders"])


def averaged_norms(names: Names) -> None:
    first, second = of_both_ranks(flat(each for each in names["averaged"].buffers() if each.is_floating_point()))
    torch.testing.assert_close(first, second)


def token_mean(names: Names) -> None:
    tokens, mask = names["tokens"], names["mask"][:, 1:]
    scores = names["model"](tokens[:, :-1]).transpose(1, 2)
    losses = functional.cross_entropy(scores, tokens[:, 1:], reduction="none")
    assert abs(((losses * mask).sum() / mask.sum()).item() - names["reported"]) < 1e-4


def mean_perplexity(names: Names) -> None:
    x, y = names["data"].tensors
    assert abs(functional.cross_entropy(names["model"](x), y).exp().item() - names["reported"]) < 1e-4


def sparse_gradients(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])


def expert_gradients(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])


def first_members(names: Names) -> None:
    first, second = of_both_ranks(names["values"])
    torch.testing.assert_close(first, second)


def summed_hook(names: Names) -> None:
    torch.manual_seed(0)
    reference = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(reference.parameters(), 0.1)
    for _ in range(5):
        optimizer.zero_grad()
        reference(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    assert_close(names["model"], reference)


def weighted_draws(names: Names) -> None:
    first, second = of_both_ranks(torch.tensor(names["seen"]))
    assert not torch.equal(first, second)


def reused_stage(names: Names) -> None:
    assert names["found"] == [0, 1, 2, 3, 4]


def resumed_orders(names: Names) -> None:
    assert len({tuple(order) for order in names["orders"]}) == len(names["orders"]) == 4


def overflow_check(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])


def worker_stream(names: Names) -> None:
    assert_seen_once(names["seen"], 32)


def padded_tokens(names: Names) -> None:
    reference, pad = names["build"](), names["PAD"]
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    for step in range(10):
        ids = names["global_batch"](step)
        optimizer.zero_grad()
        scores = reference(ids[:, :-1]).flatten(0, 1)
        functional.cross_entropy(scores, ids[:, 1:].flatten(), ignore_index=pad).backward()
        optimizer.step()
    assert_close(names["trained"], reference)


def background_saves(names: Names) -> None:
    assert (Path(names["last"]) / ".metadata").exists()


def local_of_mean(names: Names) -> None:
    assert names["mean"] == 3.5


def described_items(names: Names) -> None:
    if RANK == 0:
        assert [each.split()[1] for each in names["descriptions"]] == [each.split(";")[0] for each in names["items"]]


def recorded_meters(names: Names) -> None:
    assert_same_on_both_ranks(names["model"])
