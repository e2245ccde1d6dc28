"""Recipes that patch the user's own script by its text alone, and scripts that they leave as they are."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ddpwizard.app.fixes.build import build_fixes
from ddpwizard.app.fixes.facts import FixContext
from helpers.built_in_knowledge import built_in_knowledge

KNOWLEDGE = built_in_knowledge()
IMPORTS = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

"""


def patched(tmp_path: Path, cause: str, fix: str, code: str) -> str | None:
    """Return the script after the patch of a fix, without its imports; None if the fix has no patch."""
    script = tmp_path / "train.py"
    script.write_text(IMPORTS + textwrap.dedent(code))
    built = build_fixes(KNOWLEDGE.causes[cause], FixContext(script=str(script)), KNOWLEDGE)
    patches = next(each for each in built if each.id == fix).patches
    return patches[0].after.removeprefix(IMPORTS) if patches else None


def check(tmp_path: Path, cause: str, fix: str, before: str, after: str) -> None:
    assert patched(tmp_path, cause, fix, before) == textwrap.dedent(after)


class TestCallWrapper:
    fix = ("wrapper-forward-bypassed", "call-the-wrapper")

    def test_training_forward_goes_through_the_wrapper(self, tmp_path: Path) -> None:
        before = """
            net = DDP(Net())
            for x, y in loader:
                loss = loss_of(net.module(x), y)
                loss.backward()
            with torch.no_grad():
                net.module(x)
            torch.save(net.module.state_dict(), "a.pt")
        """
        check(tmp_path, *self.fix, before, before.replace("loss_of(net.module(x)", "loss_of(net(x)"))

    def test_gradients_of_a_method_are_averaged(self, tmp_path: Path) -> None:
        before = """
            net = DDP(Net())
            for x, y in loader:
                with torch.no_grad():
                    net.module(x)
                net.module.loss(x).backward()
                other.module(x)
        """
        after = """
            net = DDP(Net())
            for x, y in loader:
                with torch.no_grad():
                    net.module(x)
                net.module.loss(x).backward()
                for parameter in net.parameters():
                    if dist.is_initialized() and parameter.grad is not None:
                        dist.all_reduce(parameter.grad)
                        parameter.grad /= dist.get_world_size()
                other.module(x)
        """
        check(tmp_path, *self.fix, before, after)


class TestUnscaleBeforeClip:
    fix = ("gradient-scaler-amp", "unscale-before-clip")
    before = """
        scaler = torch.amp.GradScaler("cuda")
        for x in loader:
            scaler.scale(loss).backward()
            if step % 4 == 0:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
    """

    def test_gradients_are_unscaled_before_they_are_clipped(self, tmp_path: Path) -> None:
        clip = "                nn.utils.clip_grad_norm_"
        after = self.before.replace(clip, f"                scaler.unscale_(optimizer)\n{clip}")
        check(tmp_path, *self.fix, self.before, after)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("scaler.scale(loss).backward()\n", "scaler.scale(loss).backward()\n            scaler.step(other)\n"),
            ("scaler.update()", "scaler.step(other)"),
            ("nn.utils", "scaler.unscale_(optimizer)\n                nn.utils"),
            ("scaler.step(optimizer)", "optimizer.step()"),
        ],
        ids=["step before", "two optimizers", "unscaled", "no step of the scaler"],
    )
    def test_other_orders(self, tmp_path: Path, old: str, new: str) -> None:
        changed = patched(tmp_path, *self.fix, self.before.replace(old, new))
        assert (changed is None) is (old != "scaler.scale(loss).backward()\n")


class TestOneWriter:
    fix = ("checkpoint-race", "rank-0-writes")

    def test_rank_0_saves_and_the_others_wait_where_they_load(self, tmp_path: Path) -> None:
        before = """
            def main():
                dist.init_process_group("gloo")
                torch.save(
                    net.state_dict(),
                    "a.pt",
                )
                torch.save(optimizer.state_dict(), "b.pt")
                net.load_state_dict(torch.load("a.pt"))

            if __name__ == "__main__":
                main()
        """
        after = """
            def main():
                dist.init_process_group("gloo")
                if not dist.is_initialized() or dist.get_rank() == 0:
                    torch.save(
                        net.state_dict(),
                        "a.pt",
                    )
                if dist.is_initialized():
                    dist.barrier()
                if not dist.is_initialized() or dist.get_rank() == 0:
                    torch.save(optimizer.state_dict(), "b.pt")
                net.load_state_dict(torch.load("a.pt"))

            if __name__ == "__main__":
                main()
        """
        check(tmp_path, *self.fix, before, after)

    @pytest.mark.parametrize(
        "code",
        [
            'if dist.get_rank() == 0:\n    torch.save(net.state_dict(), "a.pt")\n',
            'torch.save(net.state_dict(), f"a{dist.get_rank()}.pt")\n',
            'def save():\n    torch.save(net.state_dict(), "a.pt")\nif dist.get_rank() == 0:\n    save()\n',
            'from torch.distributed.fsdp import fully_shard\nfully_shard(net)\ntorch.save(net.state_dict(), "a.pt")\n',
            'if loss < best:\n    torch.save(net.state_dict(), "a.pt")\nnet.load_state_dict(torch.load("a.pt"))\n',
        ],
        ids=["guarded", "a file of its own", "guarded above", "sharded", "loaded, under a condition of the data"],
    )
    def test_saves_that_stay_as_they_are(self, tmp_path: Path, code: str) -> None:
        assert patched(tmp_path, *self.fix, f'dist.init_process_group("gloo")\n{code}') is None

    def test_directory_is_made_by_any_rank(self, tmp_path: Path) -> None:
        before = 'dist.init_process_group("gloo")\nos.makedirs("runs")\nos.makedirs("logs", exist_ok=True)\n'
        after = before.replace('os.makedirs("runs")', 'os.makedirs("runs", exist_ok=True)')
        check(tmp_path, "all-ranks-side-effects", "directory-may-exist", before, after)


class TestEndOfJob:
    fix = ("exit-hang", "end-the-group")

    def test_group_ends_where_the_job_ends(self, tmp_path: Path) -> None:
        before = """
            def setup():
                if "RANK" in os.environ:
                    dist.init_process_group("gloo")

            def main():
                setup()
                for x in loader:
                    net(x)

            if __name__ == "__main__":
                main()
        """
        end = "                main()\n"
        added = "                if dist.is_initialized():\n                    dist.destroy_process_group()\n"
        check(tmp_path, *self.fix, before, before.replace(end, end + added))

    def test_a_job_that_may_return_early(self, tmp_path: Path) -> None:
        before = """
            def main():
                if not torch.cuda.is_available():
                    return
                dist.init_process_group("nccl")
                train()

            if __name__ == "__main__":
                main()
        """
        end = "                main()\n"
        added = "                if dist.is_initialized():\n                    dist.destroy_process_group()\n"
        check(tmp_path, *self.fix, before, before.replace(end, end + added))

    def test_a_job_that_is_called_within_another_statement(self, tmp_path: Path) -> None:
        before = """
            def main():
                dist.init_process_group("gloo")
                for x in loader:
                    net(x)

            if __name__ == "__main__":
                sys.exit(main())
        """
        end = "                    net(x)\n"
        check(tmp_path, *self.fix, before, before.replace(end, end + "                dist.destroy_process_group()\n"))

    def test_module_without_a_function_and_without_a_last_newline(self, tmp_path: Path) -> None:
        before = 'dist.init_process_group("gloo")\nfor x in loader:\n    net(x)'
        check(tmp_path, *self.fix, before, before + "\ndist.destroy_process_group()")

    def test_every_rank_ends_the_group_that_one_rank_ended(self, tmp_path: Path) -> None:
        before = 'dist.init_process_group("gloo")\nif dist.get_rank() == 0:\n    dist.destroy_process_group()\n'
        check(tmp_path, *self.fix, before, before.replace("dist.get_rank() == 0", "dist.is_initialized()"))

    @pytest.mark.parametrize(
        "code",
        [
            'dist.init_process_group("gloo")\ntrain()\ndist.destroy_process_group()\n',
            'def main():\n    dist.init_process_group("gloo")\n    if x:\n        return\n    train()\nmain()\n',
            'def main():\n    dist.init_process_group("gloo")\n    return evaluate()\nmain()\n',
        ],
        ids=["ended", "early return", "a call is returned"],
    )
    def test_scripts_that_stay_as_they_are(self, tmp_path: Path, code: str) -> None:
        assert patched(tmp_path, *self.fix, code) is None


class TestAddSampler:
    fix = ("missing-sampler", "give-each-rank-its-part")

    def test_loader_gets_a_sampler_and_the_loop_its_epoch(self, tmp_path: Path) -> None:
        before = """
            dist.init_process_group("gloo")
            net = DDP(nn.Linear(4, 1))
            loader = DataLoader(data, batch_size=4, shuffle=True)
            test_loader = DataLoader(test_data, batch_size=4)
            for epoch in range(3):
                for x in loader:
                    net(x).backward()
        """
        after = """
            dist.init_process_group("gloo")
            net = DDP(nn.Linear(4, 1))
            sampler = DistributedSampler(data) if dist.is_initialized() else None
            loader = DataLoader(data, batch_size=4, sampler=sampler, shuffle=sampler is None)
            test_loader = DataLoader(test_data, batch_size=4)
            for epoch in range(3):
                if sampler is not None:
                    sampler.set_epoch(epoch)
                for x in loader:
                    net(x).backward()
        """
        done = patched(tmp_path, *self.fix, before)
        assert done == f"from torch.utils.data import DistributedSampler\n{IMPORTS}{textwrap.dedent(after)}"

    @pytest.mark.parametrize(
        "code",
        [
            "loader = DataLoader(data, shuffle=args.shuffle)\n",
            "loader = DataLoader(data, sampler=own)\n",
            "loader = accelerator.prepare(DataLoader(data, shuffle=True))\n",
            "loader = DataLoader(val_data, shuffle=True)\n",
        ],
    )
    def test_loaders_that_stay_as_they_are(self, tmp_path: Path, code: str) -> None:
        assert patched(tmp_path, *self.fix, f'dist.init_process_group("gloo")\n{code}') is None


class TestOptimizerAfterShard:
    fix = ("fsdp-optimizer-order", "make-the-optimizer-later")

    def test_optimizer_is_made_behind_the_last_shard(self, tmp_path: Path) -> None:
        before = """
            from torch.distributed.fsdp import fully_shard
            optimizer = torch.optim.Adam(
                net.parameters(),
            )
            for block in net.blocks:
                fully_shard(block)
            fully_shard(net)
            optimizer.zero_grad()
        """
        after = """
            from torch.distributed.fsdp import fully_shard
            for block in net.blocks:
                fully_shard(block)
            fully_shard(net)
            optimizer = torch.optim.Adam(
                net.parameters(),
            )
            optimizer.zero_grad()
        """
        check(tmp_path, *self.fix, before, after)

    def test_optimizer_that_is_used_before_is_left(self, tmp_path: Path) -> None:
        code = (
            "from torch.distributed.fsdp import fully_shard\n"
            "o = torch.optim.Adam(net.parameters())\ns = Schedule(o)\nfully_shard(net)\n"
        )
        assert patched(tmp_path, *self.fix, code) is None


class TestLocalRankArgument:
    fix = ("env-contract-broken", "parser-reads-local-rank")

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (
                'p.add_argument("--local_rank", type=int, required=True)\n',
                'p.add_argument("--local_rank", "--local-rank", type=int, '
                'default=int(os.environ.get("LOCAL_RANK", 0)))\n',
            ),
            (
                'p.add_argument("--local-rank", default=-1, dest="gpu")\n',
                'p.add_argument("--local-rank", "--local_rank", dest="gpu", type=int, '
                'default=int(os.environ.get("LOCAL_RANK", -1)))\n',
            ),
        ],
    )
    def test_parser_reads_the_variable_of_torchrun(self, tmp_path: Path, before: str, after: str) -> None:
        check(tmp_path, *self.fix, before, after)

    def test_patched_parser_gets_the_local_rank(self, tmp_path: Path) -> None:
        code = (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--local_rank', type=int, required=True)\n"
        )
        script = tmp_path / "train.py"
        script.write_text(code + "print(p.parse_args().local_rank)\n")
        built = build_fixes(KNOWLEDGE.causes[self.fix[0]], FixContext(script=str(script)), KNOWLEDGE)
        script.write_text(next(each for each in built if each.id == self.fix[1]).patches[0].after)
        for arguments, rank in ([], "3"), (["--local-rank=1"], "1"), (["--local_rank", "2"], "2"):
            line = [sys.executable, str(script), *arguments]
            done = subprocess.run(
                line, env=os.environ | {"LOCAL_RANK": "3"}, capture_output=True, text=True, check=True
            )
            assert done.stdout == f"{rank}\n"

    @pytest.mark.parametrize(
        "code",
        [
            'p.add_argument("--rank", type=int)\n',
            'p.add_argument("--local-rank", "--local_rank", default=os.environ["LOCAL_RANK"], type=int)\n',
            'p.add_argument("--local_rank", **options)\n',
        ],
    )
    def test_parsers_that_stay_as_they_are(self, tmp_path: Path, code: str) -> None:
        assert patched(tmp_path, *self.fix, code) is None


class TestLauncherGroup:
    @pytest.mark.parametrize(
        ("cause", "arguments"),
        [
            ("init-file-stale", 'init_method="file:///tmp/x", rank=rank, world_size=2'),
            ("env-contract-broken", 'rank=int(os.environ["LOCAL_RANK"]), world_size=size'),
            ("env-contract-broken", "rank=rank, world_size=torch.cuda.device_count()"),
        ],
    )
    def test_group_is_that_of_the_launcher(self, tmp_path: Path, cause: str, arguments: str) -> None:
        before = f'dist.init_process_group("gloo", {arguments}, timeout=limit)\n'
        check(tmp_path, cause, "group-of-the-launcher", before, 'dist.init_process_group("gloo", timeout=limit)\n')

    def test_group_that_the_launcher_makes_is_left(self, tmp_path: Path) -> None:
        code = 'dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=size)\n'
        assert patched(tmp_path, "env-contract-broken", "group-of-the-launcher", code) is None
