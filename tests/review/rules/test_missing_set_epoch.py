"""DW203: samplers with the same order in every epoch, and samplers that need no set_epoch."""

import textwrap

import pytest
from helpers.review_snippets import found, lines, refused, repaired, script

DATA = """
from torch.utils.data import DataLoader, DistributedSampler
"""
STEP = "loss = model(batch)\nloss.backward()\noptimizer.step()\n"

FIXED = {
    "a loader that a function of another file wraps": (
        """
        from backends import distribute
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        model, batches = distribute(model=model, data=dataset if sharded else loader)
        for epoch in range(10):
            for batch in batches:
                model(batch).backward()
        """,
        "for epoch in range(10):\n",
        "    sampler.set_epoch(epoch)\n",
    ),
    "a loader of the module": (
        """
        def train(model):
            for batch in train_loader:
                model(batch).backward()
        sampler = DistributedSampler(dataset) if ranks > 1 else None
        train_loader = DataLoader(dataset, sampler=sampler)
        for epoch in range(10):
            train(model)
        """,
        "for epoch in range(10):\n",
        "    if sampler is not None:\n        sampler.set_epoch(epoch)\n",
    ),
    "an option that shuffles, and a step in a library": (
        """
        def main(options, model):
            train_sampler = DistributedSampler(dataset, shuffle=options["shuffle"])
            train_loader = DataLoader(dataset, sampler=train_sampler)
            for epoch in range(100):
                for batch in train_loader:
                    model.feed(batch)
                    model.optimize()
        """,
        "    for epoch in range(100):\n",
        "        train_sampler.set_epoch(epoch)\n",
    ),
    "a sampler of its own": (
        """
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        for epoch in range(10):
            for batch in loader:
                model(batch).backward()
        """,
        "for epoch in range(10):\n",
        "    sampler.set_epoch(epoch)\n",
    ),
    "a sampler without a name": (
        """
        def main(args):
            loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=True))
            for epoch in range(args.start, args.epochs):
                # one epoch
                model.train()
                for step, batch in enumerate(loader):
                    model(batch).backward()
        """,
        "    for epoch in range(args.start, args.epochs):\n",
        "        loader.sampler.set_epoch(epoch)\n",
    ),
    "an odd loop variable": (
        """
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        for state["epoch"] in range(state["epoch"], 10):
            batches = iter(loader)
            for step in range(len(loader)):
                model(next(batches)).backward()
        """,
        'for state["epoch"] in range(state["epoch"], 10):\n',
        '    sampler.set_epoch(state["epoch"])\n',
    ),
    "through a function": (
        """
        def train(model, loader):
            for batch in tqdm(loader):
                model(batch).backward()
        def main():
            train_loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
            for e in trange(10):
                train(model, train_loader)
        """,
        "    for e in trange(10):\n",
        "        train_loader.sampler.set_epoch(e)\n",
    ),
    "only in distributed runs": (
        """
        sampler = DistributedSampler(dataset) if distributed else None
        loader = DataLoader(dataset, sampler=sampler, shuffle=sampler is None)
        for epoch in range(10):
            for batch in loader:
                model(batch).backward()
        """,
        "for epoch in range(10):\n",
        "    if sampler is not None:\n        sampler.set_epoch(epoch)\n",
    ),
    "a sampler that only distributed runs bind": (
        """
        if distributed:
            sampler = DistributedSampler(dataset)
            loader = DataLoader(dataset, sampler=sampler)
        else:
            loader = DataLoader(dataset, shuffle=True)
        for epoch in range(10):
            for batch in loader:
                model(batch).backward()
        """,
        "for epoch in range(10):\n",
        '    if hasattr(loader.sampler, "set_epoch"):\n        loader.sampler.set_epoch(epoch)\n',
    ),
    "a sampler that is deleted": (
        """
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        del sampler
        for epoch in range(10):
            for batch in loader:
                model(batch).backward()
        """,
        "for epoch in range(10):\n",
        "    loader.sampler.set_epoch(epoch)\n",
    ),
    "a loader that may be None": (
        """
        loader = None
        if training:
            loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10):
            if loader is not None:
                for batch in loader:
                    model(batch).backward()
        """,
        "for epoch in range(10):\n",
        "    if loader is not None:\n        loader.sampler.set_epoch(epoch)\n",
    ),
    "a loader that is bound where it is read": (
        """
        if training:
            loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10):
            if training:
                for batch in loader:
                    model(batch).backward()
        """,
        "    if training:\n        ",
        "loader.sampler.set_epoch(epoch)\n        ",
    ),
    "a function that may return no sampler": (
        """
        def sampler_of(dataset):
            if dist.is_initialized():
                return DistributedSampler(dataset)
        sampler = sampler_of(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        for epoch in range(10):
            for batch in loader:
                model(batch).backward()
        """,
        "for epoch in range(10):\n",
        "    if sampler is not None:\n        sampler.set_epoch(epoch)\n",
    ),
    "a sampler that an exception leaves out": (
        """
        try:
            sampler = DistributedSampler(dataset)
        except RuntimeError:
            sampler = None
        loader = DataLoader(dataset, sampler=sampler)
        for epoch in range(10):
            for batch in loader:
                model(batch).backward()
        """,
        "for epoch in range(10):\n",
        "    if sampler is not None:\n        sampler.set_epoch(epoch)\n",
    ),
    "a loader that another function may leave out": (
        """
        class Trainer:
            def setup(self):
                self.loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
            def close(self):
                self.loader = None
            def fit(self):
                for epoch in range(10):
                    self.setup_if_needed()
                    if self.loader:
                        for batch in self.loader:
                            self.model(batch).backward()
        """,
        "            if self.loader:\n                ",
        "self.loader.sampler.set_epoch(epoch)\n                ",
    ),
    "a sampler that is an attribute": (
        """
        class Trainer:
            def __init__(self, dataset, distributed):
                self.sampler = DistributedSampler(dataset) if distributed else None
                self.loader = DataLoader(dataset, sampler=self.sampler)
            def fit(self):
                for epoch in range(10):
                    for batch in self.loader:
                        self.model(batch).backward()
        """,
        "        for epoch in range(10):\n",
        "            if self.sampler is not None:\n                self.sampler.set_epoch(epoch)\n",
    ),
    "in a trainer": (
        """
        class Trainer:
            def __init__(self, dataset):
                self.loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
            def run_epoch(self):
                for batch in self.loader:
                    self.step(batch)
            def step(self, batch):
                self.model(batch).backward()
            def fit(self, epochs):
                for epoch in range(epochs):
                    self.run_epoch()
        """,
        "        for epoch in range(epochs):\n",
        "            self.loader.sampler.set_epoch(epoch)\n",
    ),
    "a loader from a function": (
        """
        def loaders(root):
            train_set = load(root)
            train_sampler = DistributedSampler(train_set)
            train_loader = DataLoader(train_set, sampler=train_sampler)
            test_loader = DataLoader(load(root), batch_size=2)
            return train_loader, test_loader
        def main(root):
            train_loader, test_loader = loaders(root)
            for epoch in range(3):
                for batch in train_loader:
                    model(batch).backward()
        """,
        "    for epoch in range(3):\n",
        "        train_loader.sampler.set_epoch(epoch)\n",
    ),
    "a while loop": (
        """
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        epoch = 0
        while epoch < 10:
            for batch in loader:
                model(batch).backward()
            epoch += 1
        """,
        "while epoch < 10:\n",
        "    sampler.set_epoch(epoch)\n",
    ),
    "a batch sampler": (
        """
        from torch.utils.data import BatchSampler
        def main():
            loader = DataLoader(dataset, batch_sampler=BatchSampler(DistributedSampler(dataset), 8, False))
            for epoch in range(10):
                for batch in loader:
                    model(batch).backward()
        """,
        "    for epoch in range(10):\n",
        "        loader.batch_sampler.sampler.set_epoch(epoch)\n",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_patch_calls_set_epoch_where_the_sampler_is_bound(name: str) -> None:
    code, head, inserted = FIXED[name]
    before = DATA + textwrap.dedent(code)
    (finding,) = found(before, "DW203")
    assert finding.cause == "missing-set-epoch"
    assert finding.branch
    assert script(before).split("\n")[finding.branch - 1].lstrip().startswith(("for ", "while "))
    assert finding.fix
    assert finding.fix.safety == "unsafe"
    assert "DistributedSampler" in lines(before, "DW203")[0]
    assert repaired(before, "DW203") == before.replace(head, head + inserted)


def test_patch_names_an_unused_loop_variable() -> None:
    code = """
        epoch = None
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        for _ in range(10):
            for batch in loader:
                model(batch).backward()
    """
    assert "for epoch_index in range(10):\n    sampler.set_epoch(epoch_index)\n" in repaired(
        DATA + textwrap.dedent(code), "DW203"
    )


LOADER = "loader = DataLoader(dataset, sampler=DistributedSampler(dataset))\n"
BODY = "    for batch in loader:\n        model(batch).backward()\n"
SET = "    loader.sampler.set_epoch({})\n"
COUNTED = {
    "a loop over what is no number": (
        f"for epoch in epochs:\n{BODY}",
        f"for epoch_index, epoch in enumerate(epochs):\n{SET.format('epoch_index')}{BODY}",
    ),
    "a loop over pairs": (
        f"for epoch, rate in schedule:\n{BODY}",
        f"for epoch_index, (epoch, rate) in enumerate(schedule):\n{SET.format('epoch_index')}{BODY}",
    ),
    "a start that ranks disagree on": (
        f"start = 0\nif dist.get_rank() == 0:\n    start = load()\nfor epoch in range(start, 10):\n{BODY}",
        "start = 0\nif dist.get_rank() == 0:\n    start = load()\n"
        f"for epoch_index, epoch in enumerate(range(start, 10)):\n{SET.format('epoch_index')}{BODY}",
    ),
    "a counter of tokens": (
        f"tokens = 0\nwhile tokens < limit:\n{BODY}        tokens += batch.numel()\n",
        "tokens = 0\nepoch = 0\nwhile tokens < limit:\n"
        f"{SET.format('epoch')}    epoch += 1\n{BODY}        tokens += batch.numel()\n",
    ),
    "a counter that some iterations leave out": (
        f"done = 0\nwhile done < 10:\n    if skip():\n        continue\n    done += 1\n{BODY}",
        "done = 0\nepoch = 0\nwhile done < 10:\n"
        f"{SET.format('epoch')}    epoch += 1\n    if skip():\n        continue\n    done += 1\n{BODY}",
    ),
    "a counter that ranks disagree on": (
        f"e = dist.get_rank()\nwhile e < 10:\n{BODY}    e += 1\n",
        f"e = dist.get_rank()\nepoch = 0\nwhile e < 10:\n{SET.format('epoch')}    epoch += 1\n{BODY}    e += 1\n",
    ),
    "steps that start the loader again": (
        """batches = iter(loader)
for step in range(100):
    try:
        batch = next(batches)
    except StopIteration:
        batches = iter(loader)
        batch = next(batches)
    model(batch).backward()
""",
        """batches = iter(loader)
epoch = 0
for step in range(100):
    try:
        batch = next(batches)
    except StopIteration:
        epoch += 1
        loader.sampler.set_epoch(epoch)
        batches = iter(loader)
        batch = next(batches)
    model(batch).backward()
""",
    ),
    "an endless loop": (
        f"while True:\n{BODY}",
        f"epoch = 0\nwhile True:\n{SET.format('epoch')}    epoch += 1\n{BODY}",
    ),
}


@pytest.mark.parametrize("name", COUNTED)
def test_set_epoch_gets_a_number_that_counts_epochs_alike_on_every_rank(name: str) -> None:
    before, after = COUNTED[name]
    assert repaired(DATA + LOADER + before, "DW203") == DATA + LOADER + after


TRAIN = "for epoch in range(10):\n    for batch in loader:\n        model(batch).backward()\n"
CORRECT = {
    "set on the sampler": """
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        for epoch in range(10):
            sampler.set_epoch(epoch)
            for batch in loader:
                model(batch).backward()
    """,
    "set through the loader": """
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                model(batch).backward()
    """,
    "set in a called function": """
        def train(loader, epoch):
            loader.sampler.set_epoch(epoch)
            for batch in loader:
                model(batch).backward()
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10):
            train(loader, epoch)
    """,
    "set behind hasattr": """
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10):
            if hasattr(loader.sampler, "set_epoch"):
                loader.sampler.set_epoch(epoch)
            for batch in loader:
                model(batch).backward()
    """,
    "set on something unknown": f"""
        sampler = DistributedSampler(dataset)
        loader = DataLoader(dataset, sampler=sampler)
        callbacks[0].set_epoch(1)
        {TRAIN.replace(chr(10), chr(10) + " " * 8)}
    """,
    "no shuffling": f"""
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=False))
        {TRAIN.replace(chr(10), chr(10) + " " * 8)}
    """,
    "shuffling decided elsewhere": f"""
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=args.shuffle))
        {TRAIN.replace(chr(10), chr(10) + " " * 8)}
    """,
    "evaluation": """
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10):
            for batch in loader:
                model(batch)
    """,
    "validation next to training": """
        train_sampler = DistributedSampler(dataset)
        val_sampler = DistributedSampler(other)
        loader = DataLoader(dataset, sampler=train_sampler)
        val_loader = DataLoader(other, sampler=val_sampler)
        for epoch in range(10):
            train_sampler.set_epoch(epoch)
            for batch in loader:
                model(batch).backward()
            for batch in val_loader:
                model(batch)
    """,
    "one epoch": """
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for batch in loader:
            model(batch).backward()
    """,
    "a range of one": f"""
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        {TRAIN.replace("10", "1").replace(chr(10), chr(10) + " " * 8)}
    """,
    "prepared by Accelerate": f"""
        loader = accelerator.prepare(DataLoader(dataset, sampler=DistributedSampler(dataset)))
        {TRAIN.replace(chr(10), chr(10) + " " * 8)}
    """,
    "prepared by Accelerate under the same name": f"""
        accelerator = Accelerator()
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        model, loader = accelerator.prepare(model, loader)
        {TRAIN.replace(chr(10), chr(10) + " " * 8)}
    """,
    "trained by somebody else": """
        from engine import train_one_epoch
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10):
            train_one_epoch(model, loader, epoch)
    """,
    "another sampler of that name": f"""
        from samplers import DistributedSampler
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        {TRAIN.replace(chr(10), chr(10) + " " * 8)}
    """,
    "a subclass that counts by itself": f"""
        class Counting(DistributedSampler):
            def __iter__(self):
                self.epoch += 1
                return super().__iter__()
        loader = DataLoader(dataset, sampler=Counting(dataset))
        {TRAIN.replace(chr(10), chr(10) + " " * 8)}
    """,
    "folds, not epochs": """
        for fold in folds:
            loader = DataLoader(fold, sampler=DistributedSampler(fold))
            for batch in loader:
                model(batch).backward()
    """,
}


@pytest.mark.parametrize("name", CORRECT)
def test_samplers_that_need_no_set_epoch_are_not_findings(name: str) -> None:
    prefix = "" if name == "another sampler of that name" else DATA
    code = textwrap.dedent(CORRECT[name])
    if name == "another sampler of that name":
        code = "from torch.utils.data import DataLoader\n" + code
    assert lines(prefix + code, "DW203") == []


REFUSED = {
    "a loader that may be a list": (
        """
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset)) if training else [1, 2]
        for epoch in range(10):
            for batch in loader:
                model(batch).backward()
        """,
        "not accessible in the loop",
    ),
    "a body on the line of its head": (
        """
        def epoch_of(loader):
            for batch in loader:
                model(batch).backward()
        loader = DataLoader(dataset, sampler=DistributedSampler(dataset))
        for epoch in range(10): epoch_of(loader)
        """,
        "line of its head",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_patch_if_no_line_can_be_inserted(name: str) -> None:
    code, why = REFUSED[name]
    assert why in refused(DATA + textwrap.dedent(code), "DW203")


def test_finding_is_at_the_sampler_without_set_epoch() -> None:
    code = """
        first = DistributedSampler(dataset)
        second = DistributedSampler(other)
        loader = DataLoader(dataset, sampler=first)
        further = DataLoader(other, sampler=second)
        for epoch in range(10):
            first.set_epoch(epoch)
            for batch in loader:
                model(batch).backward()
            for batch in further:
                model(batch).backward()
    """
    assert lines(DATA + textwrap.dedent(code), "DW203") == ["second = DistributedSampler(other)"]
