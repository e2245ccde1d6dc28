"""The journeys: each job, the causes that are right, the lines to name, and the edit where the fix is made by hand."""

from helpers.hang_cases import Hang
from helpers.hang_jobs import named
from helpers.jobs import SCRIPTS as REAL_JOBS
from journey import Crash, Edit, Journey
from start import SCRIPTS

UNDER_RANK_TEST = ("rank-conditional-collective",)
BRANCH = ("# BRANCH", "# HANG")


def own_hang(name: str, ready: tuple[str, int]) -> Hang:
    """Return a job of this folder's scripts that hangs; ``ready``: a text, and how often it is printed before."""
    return Hang(name=name, script=str(SCRIPTS / name / "train.py"), ready=ready, causes=(), culprits=None)


def lines(*texts: str) -> str:
    """Return lines as one text."""
    return "\n".join(texts)


JOURNEYS: tuple[Journey, ...] = (
    Journey(
        name="vision",
        job=named("vision"),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(
            Edit(
                "train.py",
                "        if comms.is_main_process():  # BRANCH\n            accuracy = evaluate(model, held_out)\n",
                "        accuracy = evaluate(model, held_out)\n        if comms.is_main_process():\n",
            ),
        ),
    ),
    Journey(
        name="pretrain",
        job=named("pretrain"),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(
            Edit(
                "pretrain.py",
                "        if not self.is_main:  # BRANCH\n",
                "        if not self.is_main:\n            dist.barrier()\n",
            ),
        ),
    ),
    Journey(
        name="save-best",
        job=own_hang("save_best", ready=("validated", 3)),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
    ),
    Journey(
        name="gather_stats",
        job=named("gather_stats"),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(Edit("gather_stats.py", "_ = LOCAL == 0 and dist", "dist"),),
    ),
    Journey(
        name="segmentation",
        job=named("segmentation"),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(
            Edit("segmentation.py", "LOG_EVERY or rank > 0:", "LOG_EVERY:"),
            Edit("segmentation.py", '        print("dice"', '        if rank == 0:\n            print("dice"'),
        ),
    ),
    Journey(
        name="sharded",
        job=named("sharded"),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(
            Edit("sharded.py", "    if not mesh.get_local_rank():  # BRANCH\n        checkpointer", "    checkpointer"),
        ),
    ),
    Journey(
        name="chief",
        job=named("chief"),
        causes=UNDER_RANK_TEST,
        at=("if IS_CHIEF", "# HANG"),
        edits=(Edit("chief.py", "    if IS_CHIEF:\n        hooks", "    hooks"),),
    ),
    Journey(
        name="translate",
        job=named("translate"),
        causes=("uneven-inputs",),
        at=("for tokens in loader", "# HANG", "Sentences("),
        edits=(
            Edit("translate.py", "list(range(count))[rank::world]", "list(range(count - count % world))[rank::world]"),
        ),
    ),
    Journey(
        name="stream",
        job=named("stream"),
        causes=("uneven-inputs",),
        at=("while (batch", "# HANG", "# PEERS"),
        edits=(
            Edit(
                "stream.py",
                "        stream = iter(DataLoader(Packed(lengths(self.rank), 64), batch_size=2))",
                lines(
                    "        loader = DataLoader(Packed(lengths(self.rank), 64), batch_size=2)",
                    "        count = torch.tensor(sum(1 for _ in loader))",
                    "        dist.all_reduce(count, op=dist.ReduceOp.MIN)",
                    "        stream = itertools.islice(loader, int(count))",
                ),
            ),
        ),
    ),
    Journey(
        name="gan",
        job=named("gan"),
        causes=("per-rank-decision",),
        at=BRANCH,
        edits=(
            Edit(
                "gan.py",
                "        if not math.isfinite(loss.item()):",
                lines(
                    "        stop = torch.tensor(float(not math.isfinite(loss.item())))",
                    "        dist.all_reduce(stop, op=dist.ReduceOp.MAX)",
                    "        if stop.item():",
                ),
            ),
        ),
    ),
    Journey(
        name="tabular",
        job=named("tabular"),
        causes=("per-rank-decision",),
        at=BRANCH,
        edits=(
            Edit(
                "tabular.py",
                "        if stopper.step(score):  # BRANCH",
                lines(
                    "        stop = torch.tensor(float(stopper.step(score)))",
                    "        dist.all_reduce(stop, op=dist.ReduceOp.MAX)",
                    "        if stop.item():",
                ),
            ),
        ),
    ),
    Journey(
        name="flowers",
        job=named("flowers"),
        causes=("dataloader-stall",),
        at=("for step, pixels in enumerate(loader)", "read_bytes()"),
        edits=(
            Edit(
                "flowers.py",
                "self.files = sorted(Path(root).iterdir())",
                "self.files = sorted(path for path in Path(root).iterdir() if path.is_file())",
            ),
        ),
    ),
    Journey(
        name="voices",
        job=named("voices"),
        causes=("dataloader-stall",),
        at=("# HANG", "DataLoader("),
        edits=(
            Edit(
                "voices.py",
                '        with (self.folder / f"{index}.wav").open("rb") as stream:  # HANG\n            head',
                lines(
                    '        if not (self.folder / f"{index}.wav").is_file():',
                    "            return torch.zeros(16)",
                    '        with (self.folder / f"{index}.wav").open("rb") as stream:',
                    "            head",
                ),
            ),
        ),
    ),
    Journey(
        name="label",
        job=named("label"),
        causes=("rank-paused",),
        at=("# HANG", "# BRANCH"),
        edits=(Edit("label.py", 'confirm("Write these labels?")', "1"),),
    ),
    Journey(
        name="tracker",
        job=named("tracker"),
        causes=("external-service-block",),
        at=("# HANG",),
        edits=(
            Edit(
                "tracker.py",
                "        with urllib.request.urlopen(request) as reply:  # HANG\n            reply.read()",
                lines(
                    "        try:",
                    "            with urllib.request.urlopen(request, timeout=1) as reply:",
                    "                reply.read()",
                    "        except OSError as error:",
                    '            print("not logged:", error)',
                    "            self.enabled = False",
                ),
            ),
        ),
    ),
    Journey(
        name="metrics_log",
        job=named("metrics_log"),
        causes=("python-lock",),
        at=("# HANG", "threading.Lock()"),
        edits=(Edit("metrics_log.py", "threading.Lock()", "threading.RLock()"),),
    ),
    Journey(
        name="prefetch",
        job=named("prefetch"),
        causes=("python-lock",),
        at=("# HANG",),
        edits=(Edit("prefetch.py", '            raise OSError("stale file handle")', "            pass"),),
    ),
    Journey(
        name="ring",
        job=named("ring"),
        causes=("p2p-deadlock",),
        at=("# HANG", "dist.send("),
        edits=(
            Edit(
                "ring.py",
                "    dist.recv(incoming, src=left)  # HANG\n    dist.send(block, dst=right)",
                lines(
                    "    ops = [dist.P2POp(dist.isend, block, right), dist.P2POp(dist.irecv, incoming, left)]",
                    "    for request in dist.batch_isend_irecv(ops):",
                    "        request.wait()",
                ),
            ),
        ),
    ),
    Journey(
        name="moe",
        job=named("moe"),
        causes=("group-order-cycle",),
        at=("# HANG", "return sorted("),
        edits=(Edit("moe.py", "sorted(own, key=lambda m: (m[0] - self.rank) % dist.get_world_size())", "sorted(own)"),),
    ),
    Journey(
        name="detect",
        job=named("detect"),
        causes=("collective-desync",),
        at=("# HANG", "# PEERS", "COLLECTORS[choose"),
        edits=(Edit("detect.py", "COLLECTORS[choose(boxes)]", 'COLLECTORS["all"]'),),
    ),
    Journey(
        name="uploader",
        job=named("uploader"),
        causes=("exit-hang",),
        at=("# HANG", 'name="uploader"'),
        edits=(Edit("uploader.py", 'name="uploader")', 'name="uploader", daemon=True)'),),
    ),
    Journey(
        name="telemetry",
        job=named("telemetry"),
        causes=("rank-died-survivors-wait",),
        at=("# PEERS", "string_at"),
        edits=(Edit("telemetry.py", "        ctypes.string_at(8)\n", '        print("no such address")\n'),),
        run_first=True,
    ),
    Journey(
        name="worldsize",
        job=named("worldsize"),
        causes=("ranks-missing-at-init",),
        at=("# HANG",),
    ),
    Journey(
        name="stepwise",
        job=named("stepwise"),
        causes=("straggler-rank",),
        at=("for character in text", "code = (code", "batch(rank)"),
        row="It is too slow",
    ),
    Journey(
        name="key_error",
        job=Crash(directory="key_error"),
        causes=("script-error",),
        at=('row["height"]',),
        edits=(Edit("rows.py", 'row["height"]', 'row.get("height", 0.0)'),),
    ),
    Journey(
        name="unused_head",
        job=Crash(directory="unused_head"),
        causes=("unused-parameters",),
        at=("DDP(TwoHeads())",),
        edits=(Edit("train.py", "DDP(TwoHeads())", "DDP(TwoHeads(), find_unused_parameters=True)"),),
    ),
    Journey(
        name="plain_checkpoint",
        job=Crash(directory="plain_checkpoint"),
        causes=("module-prefix-state-dict",),
        at=("model.load_state_dict(", "torch.save("),
    ),
    Journey(
        name="fixed_port",
        job=Crash(directory="fixed_port", command="python train.py", earlier="python train.py 100000000"),
        causes=("port-in-use",),
        at=("PORT = 12355", "dist.init_process_group("),
        edits=(Edit("train.py", "PORT = 12355", "PORT = 12399"),),
    ),
    Journey(
        name="no_launcher",
        job=Crash(directory="no_launcher", command="python train.py"),
        causes=("bare-python-launch",),
        at=('os.environ["LOCAL_RANK"]',),
    ),
    Journey(
        name="read_too_early",
        job=Crash(directory="read_too_early"),
        causes=("script-error", "checkpoint-race"),
        at=("VOCABULARY.read_text()",),
        edits=(Edit("train.py", "        prepare()\n", "        prepare()\n    dist.barrier()\n"),),
    ),
    Journey(
        name="nccl_without_gpu",
        job=Crash(directory="nccl_without_gpu"),
        causes=("backend-mismatch",),
        at=('backend="nccl"',),
        edits=(Edit("train.py", 'backend="nccl"', 'backend="gloo"'),),
    ),
    Journey(
        name="model_differs",
        job=Crash(directory="model_differs"),
        causes=("rank-dependent-init", "collective-desync"),
        at=("model = DDP(",),
        edits=(
            Edit(
                "train.py",
                "    classes = int(mine.max()) + 1\n",
                lines(
                    "    agreed = [int(mine.max()) + 1]",
                    "    dist.broadcast_object_list(agreed, src=0)",
                    "    classes = agreed[0]",
                    "",
                ),
            ),
        ),
    ),
    Journey(
        name="long_values",
        job=Crash(directory="long_values"),
        causes=("collective-desync",),
        at=("dist.all_reduce(total)",),
        edits=(Edit("train.py", "torch.full((3,), rank)", "torch.full((3,), float(rank))"),),
    ),
    Journey(
        name="shapes",
        job=Crash(directory=str(REAL_JOBS / "shapes")),
        causes=("collective-desync",),
        at=("dist.all_reduce(pad(",),
        edits=(Edit("train.py", "(0, rank)", "(0, dist.get_world_size())"),),
    ),
    Journey(
        name="teacher",
        job=own_hang("teacher", ready=("epoch", 3)),
        causes=UNDER_RANK_TEST,
        at=BRANCH,
        edits=(
            Edit(
                "keep.py",
                lines(
                    "    if dist.get_rank() != 0:  # BRANCH",
                    "        return",
                    '    state = {"model": model.module.state_dict(), "averages": of_all_ranks(model.module)}',
                ),
                lines(
                    "    averages = of_all_ranks(model.module)",
                    "    if dist.get_rank() != 0:",
                    "        return",
                    '    state = {"model": model.module.state_dict(), "averages": averages}',
                ),
            ),
        ),
    ),
    Journey(
        name="heartbeat",
        job=own_hang("heartbeat", ready=("KeyError", 1)),
        causes=("rank-died-survivors-wait",),
        at=("LABELS[name]", "# PEERS"),
        edits=(Edit("train.py", "LABELS[name])", "LABELS.get(name, 0))"),),
    ),
    Journey(
        name="forked_lock",
        job=own_hang("forked_lock", ready=("reads", 3)),
        causes=("dataloader-stall", "python-lock"),
        at=("# HANG", "DataLoader("),
        edits=(Edit("train.py", "    begun.wait()\n", "    worker.join()\n"),),
    ),
    Journey(
        name="wrong_nic",
        job=Crash(directory="wrong_nic", exported=(("GLOO_SOCKET_IFNAME", "ib0"),)),
        causes=("wrong-nic",),
        at=("dist.init_process_group(",),
    ),
    Journey(
        name="leftover",
        job=Crash(
            directory="leftover",
            command="torchrun --nproc-per-node=2 --master-port=29513 train.py",
            earlier="torchrun --nproc-per-node=2 --master-port=29513 train.py 100000000",
            leftover=True,
        ),
        causes=("port-in-use",),
        names=("sport = :29513", "torchrun --standalone --nproc-per-node=2"),
    ),
    Journey(
        name="read_only_home",
        job=Crash(directory="read_only_home", exported=(("HOME", "/sys/fs"),)),
        causes=("script-error",),
        at=("CACHE.mkdir(", "Path.home()"),
        edits=(Edit("train.py", "Path.home() / ", 'Path("cache").absolute() / '),),
    ),
)
