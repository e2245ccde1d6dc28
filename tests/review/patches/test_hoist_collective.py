"""The patch for DW401: code that moves out of the condition, code that stays, and refusals."""

import textwrap

import pytest
from helpers.review_snippets import apply_fixes, found, refused, repaired

FIXED = {
    "a run of one process makes no group": (
        """
        local_rank = int(os.environ.get("LOCAL_RANK", -1))
        if local_rank != -1:
            dist.init_process_group("nccl")
        if local_rank not in [-1, 0]:
            dist.barrier()
        """,
        """
        local_rank = int(os.environ.get("LOCAL_RANK", -1))
        if local_rank != -1:
            dist.init_process_group("nccl")
        if dist.is_initialized():
            dist.barrier()
        """,
    ),
    "only the collective": (
        """
        def f(x, rank):
            if rank == 0:
                dist.all_reduce(x)
        """,
        """
        def f(x, rank):
            dist.all_reduce(x)
        """,
    ),
    "under a rank read as text": (
        """
        def f(x):
            if os.environ.get("RANK", "0") == "0":
                dist.all_reduce(x)
                print(x)
        """,
        """
        def f(x):
            dist.all_reduce(x)
            if os.environ.get("RANK", "0") == "0":
                print(x)
        """,
    ),
    "under a rank in a configuration": (
        """
        def f(cfg, x):
            if cfg["rank"] == 0:
                dist.all_reduce(x)
                print(x)
        """,
        """
        def f(cfg, x):
            dist.all_reduce(x)
            if cfg["rank"] == 0:
                print(x)
        """,
    ),
    "what it needs moves, what is shown stays": (
        """
        def validate(preds, rank):
            if rank == 0:
                acc = accuracy(preds)
                dist.all_reduce(acc)
                print(acc)
        """,
        """
        def validate(preds, rank):
            acc = accuracy(preds)
            dist.all_reduce(acc)
            if rank == 0:
                print(acc)
        """,
    ),
    "the order stays, in runs": (
        """
        def validate(model, loader, rank, writer):
            if rank == 0:
                print("start")
                model.eval()
                total = torch.zeros(1)
                started = now()
                for x in loader:
                    total += model(x)
                writer.add_scalar("local", total)
                total.div_(len(loader))
                dist.all_reduce(total)  # all of them
                print(total, started)
                torch.save(total, "t.pt")
            return None
        """,
        """
        def validate(model, loader, rank, writer):
            if rank == 0:
                print("start")
            model.eval()
            total = torch.zeros(1)
            if rank == 0:
                started = now()
            for x in loader:
                total += model(x)
            if rank == 0:
                writer.add_scalar("local", total)
            total.div_(len(loader))
            dist.all_reduce(total)  # all of them
            if rank == 0:
                print(total, started)
                torch.save(total, "t.pt")
            return None
        """,
    ),
    "the rest of the test stays": (
        """
        def log(x, step, rank):
            if rank == 0 and step % 10 == 0:
                y = x.clone()
                dist.all_reduce(y)
                print(y)
        """,
        """
        def log(x, step, rank):
            if step % 10 == 0:
                y = x.clone()
                dist.all_reduce(y)
                if rank == 0:
                    print(y)
        """,
    ),
    "a loop is split": (
        """
        def log(metrics, rank):
            if rank == 0:
                for name in metrics:
                    # over all ranks
                    dist.all_reduce(metrics[name])
                    print(name, metrics[name])
        """,
        """
        def log(metrics, rank):
            for name in metrics:
                # over all ranks
                dist.all_reduce(metrics[name])
                if rank == 0:
                    print(name, metrics[name])
        """,
    ),
    "a block and a condition are split": (
        """
        def log(x, step, rank):
            if rank == 0:
                with torch.no_grad():
                    if step % 5 == 0:
                        y = x.sum()
                        dist.all_reduce(y)
                        print(y)
        """,
        """
        def log(x, step, rank):
            with torch.no_grad():
                if step % 5 == 0:
                    y = x.sum()
                    dist.all_reduce(y)
                    if rank == 0:
                        print(y)
        """,
    ),
    "a loop without side effects moves whole": (
        """
        def log(metrics, rank):
            if rank == 0:
                for name in metrics:
                    if name.startswith("x"):
                        continue
                    dist.all_reduce(metrics[name])
                print(metrics)
        """,
        """
        def log(metrics, rank):
            for name in metrics:
                if name.startswith("x"):
                    continue
                dist.all_reduce(metrics[name])
            if rank == 0:
                print(metrics)
        """,
    ),
    "a call of a helper": (
        """
        def total(x):
            dist.all_reduce(x)
            print("summed")
            return x
        def f(x, rank):
            if rank == 0:
                y = total(x)
                print(y)
        """,
        """
        def total(x):
            dist.all_reduce(x)
            print("summed")
            return x
        def f(x, rank):
            y = total(x)
            if rank == 0:
                print(y)
        """,
    ),
    "on one line": (
        """
        def f(x, rank):
            if rank == 0: dist.all_reduce(x)
        """,
        """
        def f(x, rank):
            dist.all_reduce(x)
        """,
    ),
    "comments go with what they are about": (
        """
        def f(x, rank):
            if rank == 0:  # only once
                # sum it up
                dist.all_reduce(x)

                # and tell
                print(x)
                # done
        """,
        """
        def f(x, rank):
            # only once
            # sum it up
            dist.all_reduce(x)

            if rank == 0:
                # and tell
                print(x)
                # done
        """,
    ),
    "a string over several lines keeps its content": (
        '''
        def f(x, rank):
            if rank == 0:
                text = """
                indented
            less
                """
                y = encode(text, x)
                dist.all_reduce(y)
                print(y)
        ''',
        '''
        def f(x, rank):
            text = """
                indented
            less
                """
            y = encode(text, x)
            dist.all_reduce(y)
            if rank == 0:
                print(y)
        ''',
    ),
    "a test over several lines": (
        """
        def f(x, rank, step):
            if (
                rank == 0
                and step > 3
            ):
                dist.all_reduce(x)
                print(x)
        """,
        """
        def f(x, rank, step):
            if (
                step > 3
            ):
                dist.all_reduce(x)
                if rank == 0:
                    print(x)
        """,
    ),
    "two collectives of one branch": (
        """
        def f(x, rank):
            if rank == 0:
                dist.all_reduce(x)
                print("between")
                dist.barrier()
        """,
        """
        def f(x, rank):
            dist.all_reduce(x)
            if rank == 0:
                print("between")
            dist.barrier()
        """,
    ),
    "a collective that is an argument": (
        """
        def total(x):
            dist.all_reduce(x)
            return x
        def f(x, rank, args):
            if not args.distributed or rank == 0:
                best = max(0, total(x).item())
                print(best)
        """,
        """
        def total(x):
            dist.all_reduce(x)
            return x
        def f(x, rank, args):
            best = max(0, total(x).item())
            if not args.distributed or rank == 0:
                print(best)
        """,
    ),
    "a sum and its start": (
        """
        def evaluate(loader, rank):
            if rank == 0:
                total = 0.0
                for x in loader:
                    dist.all_reduce(x)
                    total += x.item()
                print(total)
        """,
        """
        def evaluate(loader, rank):
            total = 0.0
            for x in loader:
                dist.all_reduce(x)
                total += x.item()
            if rank == 0:
                print(total)
        """,
    ),
    "a mode and the mode behind": (
        """
        def evaluate(model, x, rank):
            if rank == 0:
                model.eval()
                y = model(x)
                dist.all_reduce(y)
                print(y)
                model.train()
        """,
        """
        def evaluate(model, x, rank):
            model.eval()
            y = model(x)
            dist.all_reduce(y)
            if rank == 0:
                print(y)
            model.train()
        """,
    ),
    "a mode that was read before": (
        """
        def evaluate(model, x, rank):
            if rank == 0:
                before = model.training
                model.eval()
                y = model(x)
                dist.all_reduce(y)
                print(y)
                model.train(before)
        """,
        """
        def evaluate(model, x, rank):
            before = model.training
            model.eval()
            y = model(x)
            dist.all_reduce(y)
            if rank == 0:
                print(y)
            model.train(before)
        """,
    ),
    "parameters frozen for a while": (
        """
        def evaluate(model, x, rank):
            if rank == 0:
                for p in model.parameters():
                    p.requires_grad_(False)
                y = model(x)
                dist.all_reduce(y)
                print(y)
                for p in model.parameters():
                    p.requires_grad_(True)
        """,
        """
        def evaluate(model, x, rank):
            for p in model.parameters():
                p.requires_grad_(False)
            y = model(x)
            dist.all_reduce(y)
            if rank == 0:
                print(y)
            for p in model.parameters():
                p.requires_grad_(True)
        """,
    ),
    "the grad mode of the process": (
        """
        def evaluate(model, x, rank):
            if rank == 0:
                print("evaluate")
                torch.set_grad_enabled(False)
                y = model(x)
                dist.all_reduce(y)
                print(y)
                torch.set_grad_enabled(True)
        """,
        """
        def evaluate(model, x, rank):
            if rank == 0:
                print("evaluate")
            torch.set_grad_enabled(False)
            y = model(x)
            dist.all_reduce(y)
            if rank == 0:
                print(y)
            torch.set_grad_enabled(True)
        """,
    ),
    "a seed": (
        """
        def noise(rank):
            if rank == 0:
                torch.manual_seed(3)
                y = torch.randn(2)
                dist.all_reduce(y)
                print(y)
        """,
        """
        def noise(rank):
            torch.manual_seed(3)
            y = torch.randn(2)
            dist.all_reduce(y)
            if rank == 0:
                print(y)
        """,
    ),
    "the epoch of the sampler in a loader": (
        """
        def train(data, rank):
            sampler = make_sampler(data)
            loader = make_loader(data, sampler=sampler)
            for epoch in range(3):
                if rank == 0:
                    sampler.set_epoch(epoch)
                    for x in loader:
                        dist.all_reduce(x)
                        print(x)
        """,
        """
        def train(data, rank):
            sampler = make_sampler(data)
            loader = make_loader(data, sampler=sampler)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for x in loader:
                    dist.all_reduce(x)
                    if rank == 0:
                        print(x)
        """,
    ),
    "a sum that starts again after each round": (
        """
        def train(steps, rank):
            total = 0.0
            for step in steps:
                if rank == 0:
                    total += step
                    y = torch.tensor(total)
                    dist.all_reduce(y)
                    print(y)
                    total = 0.0
        """,
        """
        def train(steps, rank):
            total = 0.0
            for step in steps:
                total += step
                y = torch.tensor(total)
                dist.all_reduce(y)
                if rank == 0:
                    print(y)
                total = 0.0
        """,
    ),
    "a name that the branch binds anew stays": (
        """
        def evaluate(x, rank):
            if rank == 0:
                y = x * 2
                dist.all_reduce(y)
                y = y / 2
                print(y)
        """,
        """
        def evaluate(x, rank):
            y = x * 2
            dist.all_reduce(y)
            if rank == 0:
                y = y / 2
                print(y)
        """,
    ),
    "a best value that no rank reduces stays": (
        """
        def train(steps, rank):
            best = 9.0
            for x in steps:
                if rank == 0:
                    y = x * 2
                    dist.all_reduce(y)
                    if y < best:
                        best = y
                        torch.save(y, "best.pt")
        """,
        """
        def train(steps, rank):
            best = 9.0
            for x in steps:
                y = x * 2
                dist.all_reduce(y)
                if rank == 0:
                    if y < best:
                        best = y
                        torch.save(y, "best.pt")
        """,
    ),
    "a loader that rank 0 wraps before": (
        """
        def evaluate(data, rank):
            loader = make_loader(data)
            if rank == 0:
                loader = progress(loader)
            if rank == 0:
                for x in loader:
                    dist.all_reduce(x)
        """,
        """
        def evaluate(data, rank):
            loader = make_loader(data)
            if rank == 0:
                loader = progress(loader)
            for x in loader:
                dist.all_reduce(x)
        """,
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_patch_moves_the_collective_and_keeps_side_effects(name: str) -> None:
    before, after = FIXED[name]
    assert repaired(before, "DW401") == textwrap.dedent(after)


def test_patch_is_unsafe_and_gives_the_reason() -> None:
    (finding,) = found(FIXED["what it needs moves, what is shown stays"][0], "DW401")
    assert finding.fix
    assert finding.fix.safety == "unsafe"
    assert finding.fix.why_unsafe == (
        "the collective and its inputs now run on all ranks; printing, logging and writing stay under `rank == 0`"
    )
    assert finding.fix.diff.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    assert "-        dist.all_reduce(acc)\n" in finding.fix.diff
    assert "+    dist.all_reduce(acc)\n" in finding.fix.diff


def test_patch_keeps_tabs_and_windows_newlines() -> None:
    before = (
        "import torch.distributed as dist\r\ndef f(x, rank):\r\n\tif rank == 0:\r\n\t\ty = x + 1\r\n"
        "\t\tdist.all_reduce(y)\r\n\t\tprint('é', y)\r\n"
    )
    after, done = apply_fixes(before, None, ["unsafe"])
    assert len(done) == 1
    assert after == (
        "import torch.distributed as dist\r\ndef f(x, rank):\r\n\ty = x + 1\r\n"
        "\tdist.all_reduce(y)\r\n\tif rank == 0:\r\n\t\tprint('é', y)\r\n"
    )


REFUSED = {
    "else": (
        "if rank == 0:\n    dist.all_reduce(x)\nelse:\n    print(x)",
        "else branch",
    ),
    "elif": ("if x is None:\n    print(x)\nelif rank == 0:\n    dist.all_reduce(x)", "elif"),
    "return": ("if rank == 0:\n    dist.all_reduce(x)\n    return x", "leaves the branch"),
    "raise": (
        "if rank == 0:\n    if x is None:\n        raise ValueError\n    dist.all_reduce(x)",
        "leaves the branch",
    ),
    "an outer break": (
        "for y in x:\n    if rank == 0:\n        dist.all_reduce(y)\n        if y > 3:\n            break",
        "leaves the branch",
    ),
    "an inner break among side effects": (
        "if rank == 0:\n  for y in x:\n    if y:\n      break\n    dist.all_reduce(y)\n    print(y)",
        "ends early",
    ),
    "try with side effects": (
        "if rank == 0:\n    try:\n        dist.all_reduce(x)\n    except RuntimeError:\n        print(x)",
        "only one rank should have",
    ),
    "what it needs is written": ("if rank == 0:\n    y = save(x)\n    dist.all_reduce(y)", "only one rank should have"),
    "a file around it": (
        "if rank == 0:\n    with open('log', 'w') as f:\n        dist.all_reduce(x)\n        f.write(str(x))",
        "only one rank should have",
    ),
    "made under another test": (
        "if rank == 0:\n    logits = load()\nx = x + 1\nif rank == 0:\n    dist.all_reduce(logits)",
        "`logits` exists only on some ranks",
    ),
    "a test of what only rank 0 has": (
        "writer = None\nif rank == 0:\n    writer = open('x')\nif rank == 0 and writer:\n    dist.all_reduce(x)",
        "the condition mixes the rank with `writer`",
    ),
    "a flag that is unknown": ("if rank == 0 or args.everybody:\n    dist.all_reduce(x)", "args.everybody"),
    "the result decides something": (
        "y = None\nif rank == 0:\n    y = x.sum()\n    dist.all_reduce(y)\nif y is not None:\n    print(y)",
        "depends on `y`",
    ),
    "an inner test of local data": (
        "if rank == 0:\n    acc = evaluate(x)\n    if acc > 0.5:\n        dist.all_reduce(acc)",
        "`acc` in a condition is not the same on every rank",
    ),
    "a test of local data": ("if rank == 0 and x.item() > 3:\n    dist.all_reduce(x)", "`x.item()` decides"),
    "a test of the disk": ("if rank == 0 and os.path.exists('x'):\n    dist.barrier()", "may differ between ranks"),
    "a best value that rank 0 keeps": (
        "best = 0\nif rank == 0:\n    if x > best:\n        best = x\n        dist.barrier()",
        "`best` in a condition is not the same on every rank",
    ),
    "two tests on the rank": (
        "if rank == 0:\n    if dist.get_rank() < 1:\n        dist.all_reduce(x)",
        "more than one condition",
    ),
    "what one rank receives": (
        "if rank == 0:\n    dist.recv(x, 1)\n    dist.all_reduce(x)",
        "sends or receives",
    ),
    "the branch changes its own test": (
        "if rank == 0 and args.first:\n    args.first = False\n    dist.all_reduce(x)",
        "`args.first` in a condition is not the same on every rank",
    ),
    "a sum that starts under another condition": (
        "if rank == 0:\n    total = 0.0\nx = x + 1\nif rank == 0:\n    for y in x:\n        dist.all_reduce(y)\n"
        "        total += y\n    print(total)",
        "`total` exists only on some ranks",
    ),
    "a name that every rank has afterwards only": (
        "if rank == 0:\n    total = 0.0\nfor y in x:\n    if rank == 0:\n        total += y\n"
        "        dist.all_reduce(total)\ntotal = 5.0",
        "`total` exists only on some ranks",
    ),
    "an object that is None on the other ranks": (
        "model = None\nif rank == 0:\n    model = make()\nif rank == 0:\n    y = model(x)\n    dist.all_reduce(y)",
        "`model` exists only on some ranks",
    ),
    "a mode that another condition on the rank sets back": (
        "if rank == 0:\n    args.eval()\n    y = args(x)\n    dist.all_reduce(y)\nprint(x)\n"
        "if rank == 0:\n    args.train()",
        "line 11 changes `args` on some ranks only",
    ),
    "a sum that another condition on the rank starts again": (
        "total = 0.0\nfor y in x:\n    if rank == 0:\n        total = 0.0\n    args.step()\n    if rank == 0:\n"
        "        total += y\n        z = torch.tensor(total)\n        dist.all_reduce(z)",
        "line 8 changes `total` on some ranks only",
    ),
    "a state that an unknown method may set back": (
        "if rank == 0:\n    args.swap()\n    y = args(x)\n    dist.all_reduce(y)\n    print(y)\n    args.restore()",
        "line 10 may change `args` back",
    ),
    "statements share a line": ("if rank == 0:\n    y = x; dist.all_reduce(y); print(y)", "share a line"),
    "in an expression": ("rank == 0 and args.wait and dist.barrier()", "part of an expression"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_patch_if_the_move_would_be_unsound(name: str) -> None:
    code, why = REFUSED[name]
    assert why in refused("def f(x, rank, args):\n" + textwrap.indent(code, "    ") + "\n", "DW401")


def test_no_patch_if_a_helper_would_write_on_every_rank() -> None:
    why = refused(
        """
        def save(model):
            done = open("done", "w")
            dist.barrier()
            done.close()
        def main(model, rank):
            if rank == 0:
                save(model)
        """,
        "DW401",
    )
    assert "save() also writes" in why
