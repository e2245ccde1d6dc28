"""The built-in causes: whole, honest about versions, and each reached by what a person really has at hand.

``logs/<cause>.<variant>.log`` is what the failure printed when it was run (torch 2.13.0 on CPUs, gloo, two to four
ranks; ``/dev/shm`` of 8 MB in a mount namespace, two hosts as network namespaces); only the paths were renamed.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpwizard.app.diagnosis.case import SKIPPED, Case
from ddpwizard.app.diagnosis.examples import read_examples
from ddpwizard.app.diagnosis.intake import read_sources
from ddpwizard.app.evidence import Evidence, RankedCause
from ddpwizard.app.fixes.build import GENERATORS
from ddpwizard.app.fixes.recipes.table import load_recipe
from ddpwizard.app.logs.read import clean_text, find_sources, source_of_text
from ddpwizard.app.review import review
from ddpwizard.knowledge.loader import read_knowledge
from ddpwizard.knowledge.schema import NATS, Cause, Signature

try:
    from re import _constants as constants  # pyright: ignore[reportAttributeAccessIssue]
    from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue]
except ImportError:  # Python 3.10
    import sre_constants as constants
    import sre_parse as parser

KNOWLEDGE = read_knowledge(thorough=True)
CAUSES = sorted(KNOWLEDGE.causes.values(), key=lambda cause: cause.id)
LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))
ONLY_A_SIGKILL = next(path for path in LOGS if path.stem == "worker-exit-no-traceback.sigkill")
# In these the error shows another cause as well.
UNDECIDED = (ONLY_A_SIGKILL.stem, "per-rank-decision.early-stopping")
ANSWERS = 6

# What this machine cannot print: the format strings of NCCL's and older torch's sources, filled in.
MESSAGES_OF_SOURCES = {
    "local-rank-device": [
        "init.cc:943 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000",
        "init.cc:1001 NCCL WARN Multiple ranks detected using the same GPU on this node.",
        "init.cc:1057 NCCL WARN Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1",
        "RuntimeError: CUDA error: invalid device ordinal",
        "ValueError: You can't train a model that has been loaded in 8-bit or 4-bit precision on a different device "
        "than the one you're training on.",
    ],
    "env-contract-broken": [
        "RuntimeError: the new group's world size should be less or equal to the world size set by init_process_group",
        "$ export MASTER_ADDR=29501\n$ export MASTER_PORT=10.4.0.17\n$ python worker.py --gpus 2",
    ],
    "wrong-nic": [
        "node7:212:212 [0] NCCL WARN Bootstrap: no socket interface found",
        "bootstrap.cc:126 NCCL WARN Bootstrap : no socket interface found",
        "net_socket.cc:61 NCCL WARN NET/Socket : no interface found",
        "socket.cc:480 NCCL WARN socketStartConnect: Connect to 172.17.0.1<41233> failed : No route to host",
        "NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>",
    ],
    "shm-too-small": [
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aB3xQ1 (size 9637888)",
        "NCCL WARN Error: failed to extend /dev/shm/nccl-03v824 to 4194660 bytes",
        "RuntimeError: unable to write to file </torch_81_2>: No space left on device (28)",
    ],
    "nccl-shm-one-machine": [
        "misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-glnlGK "
        "(size 14156128), error: No such file or directory (2)",
        "transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'",
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
        "Error while creating shared memory segment /dev/shm/nccl-g0wGsu (size 9637888)",
    ],
    "trainer-and-server": [
        "RuntimeError: Attempting to use the same CUDA device (UUID: GPU-1b2c) for multiple distinct roles/ranks",
        "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 240.0 seconds. Make sure",
        "ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 21.67 GiB).",
    ],
    "vendor-collectives": [
        "comm.cpp:287 init_ipc_exchange_mode: pidfd is not supported, fallbacks to drmfd exchange mode",
        "oneCCL: ze_fd_manager.cpp:144 init_device_fds: EXCEPTION: opendir failed: could not open device directory",
        "[ERROR] 2025-04-08-18:07:20 (PID:1292363, Device:1, RankID:1) ERR02200 DIST call hccl api failed.",
        "NCCL WARN hipIpcGetMemHandle failed : invalid argument",
    ],
    "mixed-parallel-groups": [
        "RuntimeError: world_size (6) is not divisible by tensor_model_parallel_size (4) x pipeline_model_parallel",
        "RuntimeError: `world_size` (6) is not divisible by tensor_model_parallel_size (4)",
        "AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(2) * cp(1) * tp(2) * pp(1) != WORLD_SIZE(8)",
        "AssertionError: world size (8) is not divisible by total_model_size (total_model_size=3)",
        "ValueError: ParallelismConfig total_size (4) does not match num_processes (8).",
    ],
    "node-preempted": [
        "slurmstepd: error: *** JOB 4711 ON node1 CANCELLED AT 2026-03-04T05:06:07 DUE TO PREEMPTION ***",
        "Message: The node was low on resource: memory. Threshold quantity: 100Mi, available: 88Mi.",
    ],
    "meta-device-left": [
        "NotImplementedError: Cannot copy out of meta tensor; no data!",
        "RuntimeError: FSDP parameters should be materialized from meta device before training, but the following were "
        "still on meta device: ['head.weight']",
        "ValueError: lm_head.weight is on the meta device, we need a `value` to put in on 0.",
    ],
    "hub-rate-limit": [
        "HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/x/revision/main",
        "HfHubHTTPError: 429 Too Many Requests for url: https://huggingface.co/x. Retry after 55 seconds",
        "OSError: Consistency check failed: file should be of size 4943162336 but has size 1912602624",
    ],
    "device-side-assert": [
        "Indexing.cu:1284: indexSelectLargeIndex: block: [134,0,0], thread: [0,0,0] Assertion "
        "`srcIndex < srcSelectDimSize` failed.",
        "ScatterGatherKernel.cu:144: operator(): block: [2,0,0], thread: [14,0,0] Assertion "
        '`idx_dim >= 0 && idx_dim < index_size && "index out of bounds"` failed.',
        "[1] include/alloc.h:125 NCCL WARN Cuda failure 710 'device-side assert triggered'",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        "  what():  [PG 1 Rank 1] Process group watchdog thread terminated with exception: CUDA error: device-side "
        "assert triggered",
    ],
    "storage-unfit": [
        "OSError: [Errno 28] No space left on device",
        "OSError: [Errno 122] Disk quota exceeded: '/data/ckpt/step_500'",
        "RuntimeError: [enforce fail at inline_container.cc:424] . unexpected pos 704 vs 598",
        'SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "full" })',
        "OSError: [Errno 30] Read-only file system: '/mnt/ckpt/run3'",
    ],
    "clock-skew": [
        "An error occurred (RequestTimeTooSkewed) when calling the PutObject operation",
        "slurmd: error: Munge decode failed: Rewound credential",
        "make: warning:  Clock skew detected.  Your build may be incomplete.",
    ],
    "node-unreachable": [
        "srun: error: Node failure on gpu-22",
        "Warning  NodeNotReady  Kubelet stopped posting node status.",
    ],
    "lossy-link": ["100 packets transmitted, 97 received, 3% packet loss, time 99132ms"],
    "settings-differ": ["worker2: bash: torchrun: command not found"],
    "service-mesh-sidecar": [
        "upstream connect error or disconnect/reset before headers",
        "2022-10-05T08:29:05.231573Z\tdebug\tenvoy filter\t[C2] new tcp proxy session",
        '{"level":"debug","scope":"envoy upstream","msg":"membership update for TLS cluster inbound|29500|| added 1"}',
    ],
    "wrapper-forward-bypassed": [
        "RuntimeError: setStorage: sizes [512], strides [1], storage offset 0, and itemsize 4 requiring a storage size "
        "of 2048 are out of bounds for storage of size 0",
        "AssertionError: Non-root FSDP instance's `_is_root` should not have been set yet or should have been set",
    ],
    "fsdp-wrap-policy": [
        "ValueError: `FlatParameter` requires uniform `requires_grad`",
        "RuntimeError: Cannot writeback when the parameter shape changes",
    ],
    "fsdp-state-dict": [
        "UserWarning: Failed to clone() tensor with name lm.weight. This may mean that this state_dict entry",
        "UserWarning: Failed to clone() tensor with name lm.weight on rank 3. This may mean that this state_dict entry",
    ],
    "data-dependent-forward": [
        "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 43 parameters while rank 12 is "
        "all-gathering 1 parameters",
        "RuntimeError: disagreement between rank0 and rank1: rank0: [7, 8], rank1: [7, 9]",
    ],
    "p2p-broken": [
        "NotImplementedError: Using RTX 4000 series doesn't support faster communication broadband via P2P or IB.",
    ],
    "tensors-on-two-devices": [
        "ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode.",
    ],
    "scheduler-launch-mismatch": [
        "srun: error: Unable to create step for job 99825: More processors requested than permitted",
    ],
    "external-service-block": ["ServiceStartTimeoutError: Timed out waiting for wandb service to start after 30.0"],
    "timeout-masks-cause": [
        "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)\n ran for 721595 milliseconds",
    ],
    "port-in-use": ["OSError: [Errno 98] Address already in use"],
    "master-unreachable": ["[c10d] The client socket has failed to connect to any network address of (node0, 29500)."],
    "bare-python-launch": ["Distributed environment: DistributedType.NO"],
    "rank-conditional-collective": ["[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 2000 ms"],
    "unused-parameters": [
        "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"
    ],
}
LIBRARY_MESSAGES: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / "library_messages.yaml").read_text())
SOURCE_MESSAGES = [
    (cause, message)
    for source in (MESSAGES_OF_SOURCES, LIBRARY_MESSAGES)
    for cause, messages in source.items()
    for message in messages
]

NO_SET_EPOCH = """\
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def main(dataset, model, optimizer, epochs):
    dist.init_process_group("gloo")
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    for epoch in range(epochs):
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
    dist.destroy_process_group()
"""

DEVICE_BY_RANK = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(model):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    return DDP(model.cuda(), device_ids=[rank])
"""


def ranked(evidence: Iterable[Evidence]) -> list[RankedCause]:
    case = Case(KNOWLEDGE)
    case.add(evidence)
    return case.diagnosis().causes


def leads(causes: list[RankedCause], cause: str) -> bool:
    """Return whether ``cause`` alone is first, with evidence for it."""
    first, second = causes[0], causes[1].confidence if causes[1:] else 0.0
    return first.id == cause and bool(first.because) and first.confidence > second


def signatures() -> Iterator[Signature]:
    for cause in CAUSES:
        yield from cause.signatures


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_an_entry_is_whole(cause: Cause):
    assert 6 <= len(cause.symptoms) <= 20
    assert len(set(cause.symptoms)) == len(cause.symptoms)
    assert cause.examples and cause.summary.endswith(".")
    assert cause.explain.count("\n\n") >= 2, "short paragraphs"
    assert max(len(line) for line in cause.explain.splitlines()) <= 120
    assert "How to tell it from similar causes" in cause.explain
    assert len(cause.clues) <= 8
    assert all(re.fullmatch(r"\w.{9,99}\.", clue.why) for clue in cause.clues)
    assert len({clue.why for clue in cause.clues}) == len(cause.clues)
    assert {"symptom", "area"} <= set(cause.questions) and cause.tells_apart
    assert cause.verify.gone or cause.verify.seen
    assert all(source.url.startswith("https://") and source.title and source.checked for source in cause.sources)
    assert "torch" in cause.holds_for


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_every_fix_can_be_made_or_read(cause: Cause):
    assert len({fix.id for fix in cause.fixes}) == len(cause.fixes)
    for fix in cause.fixes:
        assert not fix.recipe or load_recipe(fix.recipe)
        if fix.kind == "patch" and not fix.rule:
            assert fix.text and (fix.recipe or fix.set) and fix.safety != "display"
        elif fix.kind == "patch":
            rule = KNOWLEDGE.rules[fix.rule]
            assert rule.cause in (cause.id, *cause.see_also)
            assert (rule.safety, rule.why_unsafe) == (fix.safety, fix.why_unsafe)
        elif fix.kind == "text":
            assert (fix.text or fix.code) and fix.safety == "display"
        else:
            assert fix.generator in GENERATORS and fix.safety == "display"


STATEMENT = re.compile(r"(for|with|if|while|def|class|try|else|elif|async|return|import|from|assert|raise)\b")
SHELL = re.compile(r"(export [A-Z]|#SBATCH|\$ |\S+ (-{1,2}[a-z][\w-]*[= ]\S+ ?){2,}\S*$)")


def looks_like_code(line: str) -> bool:
    """Return whether a line of prose is a statement of Python or a command line as a whole."""
    text = line.strip()
    if not text or text.endswith("\\") or SHELL.match(text):
        return bool(text)
    if line.startswith("    ") and "  # " in line:
        return True
    whole = f"{text} pass" if text.endswith(":") and STATEMENT.match(text) else text
    try:
        (node,) = ast.parse(whole).body
    except (SyntaxError, ValueError):
        return False
    return not (isinstance(node, ast.Expr | ast.AnnAssign) and not isinstance(getattr(node, "value", None), ast.Call))


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_code_of_a_fix_is_a_field_of_its_own(cause: Cause):
    prose = [line for fix in cause.fixes for line in f"{fix.text}\n{fix.note}".splitlines()]
    assert not [line for line in prose if looks_like_code(line)]


@pytest.mark.parametrize(
    ("line", "is_code"),
    [
        ("state = torch.load(path)", True),
        ("for epoch in range(epochs):", True),
        ("    dist.barrier()      # all ranks", True),
        ("torchrun --nnodes=2 --nproc-per-node=8 train.py", True),
        ("export OMP_NUM_THREADS=1", True),
        ("Call it on every rank, with num_workers=0.", False),
        ("For evaluation: add up the counts with all_reduce, and", False),
        ("docker run --shm-size=16g, or --ipc=host.", False),
    ],
)
def test_code_in_prose_is_recognised(line: str, is_code: bool):
    assert looks_like_code(line) == is_code


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_differences_of_two_causes_are_in_both_entries(cause: Cause):
    for other in cause.tells_apart:
        assert cause.id in KNOWLEDGE.causes[other].tells_apart, f"{other} does not say how it differs from {cause.id}"


def test_no_pattern_can_run_away():
    """No pattern has a repetition inside a repetition."""
    assert not [each.pattern for each in signatures() if list(_nested(parser.parse(each.pattern)))]


def _nested(tree: Any, inside: bool = False) -> Iterator[str]:
    """Repetitions that stand inside another one that may come more than once."""
    for operator, argument in tree:
        if operator in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            _, most, body = argument
            if inside:
                yield str(body)
            yield from _nested(body, inside or most > 1)
        elif operator is constants.SUBPATTERN:
            yield from _nested(argument[-1], inside)
        elif operator is constants.BRANCH:
            for branch in argument[1]:
                yield from _nested(branch, inside)
        elif operator in (constants.ASSERT, constants.ASSERT_NOT):
            yield from _nested(argument[1], inside)


# Lines that healthy jobs write by the million: a literal that occurs in them would be looked at in each.
USUAL = [
    "[rank3]: 2026-11-20 10:00:00 INFO trainer.py:88 epoch 3 step 1200 loss 2.1034 lr 3.00e-04 tok/s 51200",
    "node-1:4711:4711 [3] NCCL INFO Channel 02/24 : 3[3] -> 4[4] via P2P/CUMEM",
    "node-1:4711:4711 [3] NCCL INFO Trees [0] 4/-1/-1->3->-1 [1] 4/-1/-1->3->-1",
    "[rank3]: /opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py:617: UserWarning: slow",
    "[rank3]:   warnings.warn(",
    "Epoch 3:  42%|####      | 3900/9000 [01:10<02:10, 43.11it/s, loss=2.1, memory=61.2 GiB]",
]


def test_no_literal_is_in_a_usual_line():
    literals = {signature.literal for cause in CAUSES for signature in cause.signatures}
    literals |= {message.literal for message in KNOWLEDGE.messages.values()}
    assert not [(literal, line) for literal in literals for line in USUAL if literal in line]


@pytest.mark.parametrize(
    "text",
    [clean_text(path.read_bytes()) for path in LOGS] + ["\n".join(message for _, message in SOURCE_MESSAGES)],
    ids=[*(path.stem for path in LOGS), "sources"],
)
def test_every_match_holds_its_literal_in_its_first_line(text: str):
    """The search starts at the line that contains the literal."""
    for signature in signatures():
        for hit in re.finditer(signature.pattern, text):
            start = text.rfind("\n", 0, hit.start()) + 1
            end = text.find("\n", hit.start())
            assert signature.literal in text[start : end if end >= 0 else None], hit[0][:200]


@pytest.mark.parametrize("path", [path for path in LOGS if path.stem not in UNDECIDED], ids=lambda path: path.stem)
def test_a_captured_log_leads_to_its_cause(path: Path):
    evidence = read_sources(find_sources([str(path)]), KNOWLEDGE).evidence
    cause = path.name.partition(".")[0]
    assert leads(ranked(evidence), cause)


@pytest.mark.parametrize(
    ("log", "other"),
    [
        ("bare-python-launch.key-error", "gpu-sick"),
        ("uneven-inputs.short-rank-waits", "ready-twice"),
        ("script-error.one-rank", "cuda-before-fork"),
        ("env-contract-broken.rank-twice", "backend-mismatch"),
        ("shm-too-small.read-only", "barrier-wrong-device"),
    ],
)
def test_error_in_a_log_comes_before_the_words_around_it(log: str, other: str):
    """A person who describes another problem, and quotes its message, above the output of the job."""
    path = next(path for path in LOGS if path.stem == log)
    printed = clean_text(path.read_bytes())
    for words in KNOWLEDGE.causes[other].examples:
        together = [source_of_text(f"{words}\n\n{printed}", "x")]
        apart = [source_of_text(words, "<text>"), *find_sources([str(path)])]
        for sources in (together, apart):
            assert leads(ranked(read_sources(sources, KNOWLEDGE).evidence), log.partition(".")[0]), words


BARRIER_NOTICES = [
    "[rank1]:[W1126 a.cpp:41] [PG ID 0 PG GUID 0 Rank 1]  using GPU 1 to perform barrier as devices used"
    " by this process are currently unknown. This can potentially cause a hang if this mapping is incorrect",
    "[rank1]:[W1126 a.cpp:41] Guessing device ID based on global rank. This can cause a hang if rank to"
    " GPU mapping is heterogeneous. You can specify device_id in init_process_group()",
    "UserWarning: No device id is provided via `init_process_group` or `barrier `. Using the current device.",
    "UserWarning: barrier(): using the device under current context. You can specify `device_id` in the group.",
]


@pytest.mark.parametrize("notice", BARRIER_NOTICES)
def test_a_notice_that_healthy_runs_print_decides_nothing(notice: str):
    alone = ranked(read_sources([source_of_text(notice, "x")], KNOWLEDGE).evidence)
    assert alone[0].confidence < 0.1
    error = "RuntimeError: NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000"
    found = ranked(read_sources([source_of_text(f"{notice}\n{error}", "x")], KNOWLEDGE).evidence)
    assert leads(found, "local-rank-device")


HEALTHY_NETWORK = [
    "mlx5_core 0000:01:00.0 enp1s0f0np0: Link up",
    "mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:01:00.1: Port module event: module 1, Cable unplugged",
    "SymbolErrorCounter:..............0\nLinkErrorRecoveryCounter:........0\nLinkDownedCounter:...............0",
    "     rx_crc_errors_phy: 0\n     rx_discards_phy: 0\n     out_of_sequence: 0",
    "100 packets transmitted, 100 received, 0% packet loss, time 99132ms",
]


@pytest.mark.parametrize("line", HEALTHY_NETWORK)
def test_a_link_without_errors_shows_no_loss(line: str):
    found = read_sources([source_of_text(f"[rank1]: step 40\n{line}", "x")], KNOWLEDGE).evidence
    assert not [item for item in found if item.id.startswith(("log:lossy-link/", "log:node-unreachable/"))]


@pytest.mark.parametrize(("xid", "is_sick"), [(79, True), (123, True), (45, False), (43, False), (31, False)])
def test_an_xid_of_a_program_shows_no_faulty_gpu(xid: int, is_sick: bool):
    line = f"NVRM: Xid (PCI:0000:86:00): {xid}, pid=4711, name=python, Ch 00000010"
    causes = ranked(read_sources([source_of_text(line, "x")], KNOWLEDGE).evidence)
    assert any(cause.id == "gpu-sick" and cause.confidence > 0.3 for cause in causes) == is_sick


def test_a_log_with_only_a_sigkill_leaves_two_causes():
    """The kernel's killer of processes, or somebody else: such a log does not decide it."""
    first, second, third = ranked(read_sources(find_sources([str(ONLY_A_SIGKILL)]), KNOWLEDGE).evidence)[:3]
    assert {first.id, second.id} == {"worker-exit-no-traceback", "host-ram-oom"}
    assert second.confidence > 0.1 > 10 * third.confidence


@pytest.mark.parametrize(("cause", "message"), SOURCE_MESSAGES)
def test_a_message_known_from_sources_leads_to_its_cause(cause: str, message: str):
    found = [
        item for item in read_sources([source_of_text(message, "x")], KNOWLEDGE).evidence if item.id.startswith("log:")
    ]
    assert leads(ranked(found), cause)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_812_33'", "storage-unfit"),
        ("RuntimeError: unable to write to file </torch_1_2>: No space left on device (28)", "storage-unfit"),
        ("PytorchStreamReader failed reading zip archive: failed finding central directory", "storage-unfit"),
        ("100 packets transmitted, 100 received, 0% packet loss, time 99132ms", "lossy-link"),
        ("rx_crc_errors_phy: 0\nout_of_sequence: 0\npacket_seq_err: 0", "lossy-link"),
        ("SymbolErrorCounter:.............0\nLinkDownedCounter:..............0", "lossy-link"),
        ("5 packets transmitted, 5 received, 0% packet loss, time 4005ms", "node-unreachable"),
        ("NAME    STATUS   ROLES    AGE\ngpu-1   Ready    <none>   40d", "node-unreachable"),
        ("bash: nvtop: command not found", "settings-differ"),
        ("SSL: CERTIFICATE_VERIFY_FAILED: self signed certificate in certificate chain", "clock-skew"),
    ],
)
def test_a_line_of_another_fault_or_of_none_does_not_show_the_cause(line: str, cause: str):
    found = read_sources([source_of_text(line, "x")], KNOWLEDGE).evidence
    assert not [item.id for item in found if item.id.startswith(f"log:{cause}/")]


@pytest.mark.calibration
def test_examples_lead_to_their_cause():
    """They were written without reading the rest of the entries, so a few may miss; most must not."""
    found = read_examples(CAUSES, KNOWLEDGE)
    missed = [(each.cause.id, each.number, each.problem) for each in found if each.place]
    assert len(found) - len(missed) >= 0.9 * len(found), missed
    assert sum(0 <= each.place < 3 for each in found) >= 0.95 * len(found), missed


@pytest.mark.parametrize(
    ("script", "cause"), [(NO_SET_EPOCH, "missing-set-epoch"), (DEVICE_BY_RANK, "local-rank-device")]
)
def test_a_script_leads_to_the_cause_that_leaves_no_log(script: str, cause: str):
    findings = review.review_text(script, "train.py", KNOWLEDGE)
    assert leads(ranked(review.evidence_of_findings(findings)), cause)


@pytest.mark.parametrize(
    "line", ["MASTER_PORT=29500", "MASTER_ADDR=10.0.0.2", "MASTER_ADDR=0xc0de.lan", "MASTER_PORT: 1234"]
)
def test_an_address_and_a_port_in_their_own_variables_decide_nothing(line: str):
    found = read_sources([source_of_text(f"{line}\nrank 1 hangs in all_reduce", "x")], KNOWLEDGE).evidence
    assert not [item for item in found if item.id.startswith("log:env-contract-broken")]


# Words of a clue, used for something else.
LOOKS_ALIKE = [
    ("It prints Namespace(epochs=50, num_workers=4, lr=0.1), then both GPUs freeze.", "dataloader-stall"),
    ("Two GPUs hang in NCCL since the NVLink bridge is plugged in.", "wrong-nic"),
    ("NCCL on two nodes, one tensor of 3 GiB is slow to reduce.", "nccl-plugin-missing"),
    (
        "rank 1 exitcode: -9. Before: async_io cuda is missing or is incompatible with installed torch, only cpu ops "
        "can be compiled, says ds_report of DeepSpeed.",
        "ds-op-build",
    ),
    ("gdb shows that the process hangs in a socket recv() of NCCL, server and worker both wait.", "p2p-deadlock"),
    ("With DDP on multiple GPUs a distributed checkpoint is saved in each epoch.", "ready-twice"),
    ("Both GPUs stand still, the temperatures in nvtop are low.", "gpu-sick"),
    ("distributed_type: DEEPSPEED, deepspeed_config: zero_stage 3; it is killed while saving.", "accelerate-config"),
    ("I checked that each rank has the same number of batches, it still hangs.", "uneven-inputs"),
]


@pytest.mark.parametrize(("words", "cause"), LOOKS_ALIKE)
def test_words_about_something_else_do_not_lead(words: str, cause: str):
    first = ranked(read_sources([source_of_text(words, "<stdin>")], KNOWLEDGE).evidence)[0]
    assert first.id != cause or first.confidence < 0.4


def truthful(cause: Cause, question: str) -> str:
    """Answer as a user with this cause would; "none of these" if the entry has no answer."""
    weights = {answer: NATS[weight] for answer, weight in cause.questions.get(question, {}).items()}
    best = max(weights, key=lambda answer: weights[answer], default="")
    if best and weights[best] > 0:
        return best
    left = KNOWLEDGE.questions[question].answers
    return next((answer for answer in ("none", "unsure") if answer in left), SKIPPED)


def asked(cause: Cause, most: int = ANSWERS, **before: str) -> list[RankedCause]:
    """The ranking after at most ``most`` answers that follow ``before``, probes off."""
    case = Case(KNOWLEDGE)
    for question, answer in before.items():
        case.answer(question.replace("_", "-"), answer)
    for _ in range(most):
        steps = case.diagnosis().next
        if not steps:
            break
        case.answer(steps[0].id, truthful(cause, steps[0].id))
    return case.diagnosis().causes


@pytest.mark.parametrize("question", KNOWLEDGE.questions)
def test_a_question_asks_one_thing(question: str):
    """One question mark at its end, and no second question behind "and" or "or"."""
    asked = KNOWLEDGE.questions[question].ask
    assert asked.count("?") == 1 and asked.endswith("?")
    second = r",?\s(?:and|or)\s(?:which|what|how|where|when|who|why|do|does|did|is|are|has|have|can)\b"
    assert not re.search(second, asked)
    assert not [answer for answer in KNOWLEDGE.questions[question].answers.values() if "?" in answer]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)
def test_questions_lead_to_the_cause_from_i_dont_know(cause: Cause):
    assert leads(asked(cause, symptom="unsure"), cause.id)


@pytest.mark.parametrize("name", ["benign", "consequence"])
def test_a_message_that_is_no_cause_never_names_one_alone(name: str):
    lines = {
        "benign": "[W socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3\n"
        "[W] The IPv6 network addresses of (node0, 29500) cannot be retrieved (gai error: -9 - Address family)\n"
        "Environment variable NCCL_BLOCKING_WAIT is deprecated; use TORCH_NCCL_BLOCKING_WAIT instead\n",
        "consequence": "DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.\n"
        "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels\n"
        "To avoid data inconsistency, we are taking the entire process down.\n"
        "socketProgress: Connection closed by remote peer node1<52111>\n"
        "terminate called without an active exception\n",
    }[name]
    found = read_sources([source_of_text(lines, "x")], KNOWLEDGE).evidence
    found_ids = {item.id.removeprefix("message:") for item in found if item.id.startswith("message:")}
    assert len(found_ids) == lines.count("\n")
    assert {KNOWLEDGE.messages[id_].kind for id_ in found_ids} == {name}
    case = Case(KNOWLEDGE)
    case.add(item for item in found if item.id.startswith("log:"))
    diagnosis = case.diagnosis()
    assert diagnosis.other > max((cause.confidence for cause in diagnosis.causes), default=0.0)
