"""What a rank that stands still waits for, told from its innermost frames and the source line it stands on.

A call into C (``lock.acquire()``, ``input()``, ``work.wait()``) has no Python frame: there the line itself is read.
The frames of torch are those of torch 2.13, looked at in real jobs.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from .code.calls import COLLECTIVES
from .frame import Frame

NOT_THE_USERS = re.compile(
    r"/(site|dist)-packages/|/lib(64)?/python3(\.\d+)?/|^<(?!string>|stdin>|ipython-input|cell)"
    r"|/torch/(_\w+\.py$|(_\w+|autograd|cuda|distributed|fx|multiprocessing|nn|optim|utils)/)|/s?bin/[^/.]+$"
)

NOT_OURS_EITHER = re.compile(
    r"/lib(64)?/python3(\.\d+)?/(?!(site|dist)-packages/)|/torch/|^<(?!string>|stdin>|ipython-input|cell)|/s?bin/[^/.]+$"
)
SPAWNED = "/multiprocessing/spawn.py"

C10D = "/torch/distributed/distributed_c10d.py"
FUNCTIONAL = "/torch/distributed/_functional_collectives.py"
GRADIENTS = "gradient all-reduce (DDP)"
# What torch calls on the user's behalf: file, function -> torch.distributed's name of it, and how people know it.
IMPLIED = {
    ("/torch/autograd/graph.py", "_engine_run_backward"): ("all_reduce", GRADIENTS),
    ("/torch/autograd/__init__.py", "backward"): ("all_reduce", GRADIENTS),
    ("/torch/nn/parallel/distributed.py", "_sync_buffers"): ("broadcast", "DDP's broadcast of buffers"),
    ("/torch/distributed/utils.py", "_sync_module_states"): ("broadcast", "DDP's broadcast of the model"),
    ("/torch/distributed/utils.py", "_verify_param_shape_across_processes"): (
        "all_gather",
        "DDP's comparison of the models",
    ),
    ("/torch/distributed/tensor/_redistribute.py", "redistribute_local_tensor"): ("all_gather_into_tensor", ""),
}
# The same for whole features: a part of the path, the function (or any) -> how people know it; the outermost counts.
FEATURES = (
    ("/torch/distributed/checkpoint/state_dict", "get_model_state_dict", "the gathering of the state dict"),
    ("/torch/distributed/checkpoint/state_dict", "get_optimizer_state_dict", "the gathering of the state dict"),
    ("/torch/distributed/checkpoint/state_dict", "get_state_dict", "the gathering of the state dict"),
    ("/torch/distributed/checkpoint/", "save", "the saving of a distributed checkpoint"),
    ("/torch/distributed/checkpoint/", "load", "the loading of a distributed checkpoint"),
    ("/torch/distributed/fsdp/_state_dict_utils.py", "", "FSDP's gathering of the state dict"),
    ("/torch/distributed/tensor/_api.py", "full_tensor", "the gathering of a sharded tensor"),
    ("/torch/nn/utils/clip_grad.py", "", "the norm of sharded gradients"),
    ("/torch/distributed/fsdp/", "post_backward", "FSDP's reduction of gradients"),
    ("/torch/distributed/fsdp/", "pre_forward", "FSDP's gathering of parameters"),
    ("/torch/distributed/fsdp/", "unshard", "FSDP's gathering of parameters"),
    ("/torch/distributed/algorithms/join.py", "", "the Join of uneven inputs"),
    ("/torch/distributed/optim/", "consolidate_state_dict", "the gathering of the optimizer's state"),
)
Kind = Literal["loader", "person", "service", "lock", "gil", "feeder", "files", "sleep", "dormant", "store", "exit"]


class Doing(NamedTuple):
    """What a rank waits for outside of any collective; ``what`` ends the sentence "it waits …"."""

    kind: Kind
    what: str


PERSON = "for a person"
QUEUE = Doing("lock", "for an item in a queue")
SLEEPS = "until its sleep is over"
ELSEWHERE = Doing("service", "for an answer from another machine")
CHILD = Doing("lock", "for a process it started")
KEEPS_GIL = Doing("gil", "in a call into C that keeps Python's lock (the GIL): none of its other threads can run")
CLIENTS = ("curl", "wget", "aws", "gsutil", "gcloud", "azcopy", "rclone", "rsync", "scp", "ssh", "git", "hf", "nc")
# A part of the path, the function (or any) -> what it is. Read from the innermost frame outwards; the first counts.
FRAMES: tuple[tuple[str, str, Doing], ...] = (
    *(
        (path, "", Doing("person", f"{PERSON}, in a debugger"))
        for path in ("/pdb.py", "/bdb.py", "/debugpy/", "/pydevd", "/ipdb/", "/pudb/", "/remote_pdb.py")
    ),
    *((p, "", Doing("person", f"{PERSON} to type")) for p in ("/getpass.py", "/click/termui.py", "/rich/prompt.py")),
    ("/code.py", "interact", Doing("person", f"{PERSON} to type")),
    ("/IPython/terminal/", "", Doing("person", f"{PERSON} to type")),
    ("/torch/utils/data/", "", Doing("loader", "for its data loader")),
    ("/webdataset/", "", Doing("loader", "for its data loader")),
    ("/streaming/base/", "", Doing("loader", "for its data loader")),
    *(
        (path, "", ELSEWHERE)
        for path in (
            *("/ssl.py", "/http/client.py", "/urllib/request.py", "/socket.py", "/urllib3/", "/requests/", "/httpx/"),
            *("/httpcore/", "/aiohttp/", "/botocore/", "/boto3/", "/grpc/", "/wandb/", "/mlflow/", "/comet_ml/"),
            *("/huggingface_hub/", "/neptune/", "/google/cloud/", "/redis/", "/psycopg", "/pymysql/", "/pymongo/"),
            *("/smtplib.py", "/ftplib.py", "/imaplib.py", "/paramiko/", "/xmlrpc/client.py", "/zmq/", "/kafka/"),
            *("/fsspec/", "/s3fs/", "/gcsfs/", "/clearml/", "/telnetlib.py", "/poplib.py", "/websockets/"),
        )
    ),
    ("/threading.py", "_shutdown", Doing("exit", "for its other threads to end, on the way out")),
    ("/multiprocessing/util.py", "_exit_function", Doing("exit", "for a process it started to end, on the way out")),
    ("/concurrent/futures/thread.py", "_python_exit", Doing("exit", "for its other threads to end, on the way out")),
    ("/subprocess.py", "", CHILD),
    ("/multiprocessing/queues.py", "", QUEUE),
    ("/queue.py", "", QUEUE),
    ("/multiprocessing/connection.py", "", Doing("lock", "for another process of its own")),
    ("/multiprocessing/", "", Doing("lock", "for another process of its own")),
    ("/concurrent/futures/", "", Doing("lock", "for a task of its own")),
    ("/logging/__init__.py", "acquire", Doing("lock", "for the lock of a logger")),
    ("<frozen importlib._bootstrap>", "acquire", Doing("lock", "for the lock of an import")),
    ("/filelock/", "", Doing("lock", "for a lock file")),
    ("/portalocker/", "", Doing("lock", "for a lock file")),
    ("/fasteners/", "", Doing("lock", "for a lock file")),
    ("/asyncio/", "", Doing("lock", "for a task of its own")),
    ("/selectors.py", "", Doing("lock", "for an event")),
    ("/threading.py", "join", Doing("lock", "for another thread to end")),
    ("/threading.py", "_wait_for_tstate_lock", Doing("lock", "for another thread to end")),
    ("/threading.py", "", Doing("lock", "for a lock or an event")),
    ("/torch/serialization.py", "", Doing("files", "for a file")),
    ("/shutil.py", "", Doing("files", "for a file")),
)
SAYS_MORE = {"person": 4, "exit": 3, "loader": 2, "service": 1}  # of several kinds in one stack

# The line of the user's innermost frame, where what it calls shows no frame of its own.
LINES: tuple[tuple[re.Pattern[str], Doing], ...] = (
    (re.compile(r"\b(input|breakpoint|raw_input)\("), Doing("person", f"{PERSON} to type")),
    (re.compile(r"\bstdin\b"), Doing("person", f"{PERSON} to type")),
    (re.compile(r"\bset_trace\("), Doing("person", f"{PERSON}, in a debugger")),
    (re.compile(r"\bsignal\.pause\(|\bsigwait(info)?\("), Doing("person", "for a signal")),
    (
        re.compile(r"\.(recv|recv_into|recvfrom|accept|connect|sendall|makefile|getresponse)\(|\burlopen\("),
        ELSEWHERE,
    ),
    (
        re.compile(r"\b(getaddrinfo|gethostbyname|create_connection)\("),
        ELSEWHERE,
    ),
    (re.compile(r"\b(flock|lockf)\("), Doing("lock", "for a lock file")),
    (re.compile(r"\.acquire\("), Doing("lock", "for a lock")),
    (re.compile(r"\bos\.(wait|waitpid|wait3|wait4|waitid)\("), CHILD),
    (
        re.compile(r"\b(async\s+)?with\b.*(lock|mutex|semaphore|condition|\bcond\b|sem\b)", re.I),
        Doing("lock", "for a lock"),
    ),
    (re.compile(r"\.join\(\s*\)"), Doing("lock", "for another thread to end")),
    (re.compile(r"(queue|\bq|inbox|mailbox|results?)\w*\.(get|put)\(", re.I), QUEUE),
    (re.compile(r"\bselect\.(select|poll|epoll)\(|\.poll\("), Doing("lock", "for an event")),
    (re.compile(r"\bos\.(read|open)\(|\bopen\("), Doing("lock", "for the other end of a pipe or file")),
    (re.compile(r"\bsleep\("), Doing("sleep", SLEEPS)),
    (re.compile(r"\bstore\w*\.(get|wait)\(", re.I), Doing("store", "for a key that another rank must set")),
)
# The kernel function a thread sleeps in (Linux 6.18), where neither frame nor line tell.
KERNEL: tuple[tuple[re.Pattern[str], Doing], ...] = (
    (re.compile(r"nfs|rpc_wait|fuse|ceph|cl_sync|ldlm|smb|cifs"), Doing("service", "for a file server to answer")),
    (re.compile(r"n_tty_read"), Doing("person", f"{PERSON} to type")),
    (re.compile(r"futex"), Doing("lock", "for a lock or another thread of its own")),
    (re.compile(r"pipe_(read|write)|wait_for_partner"), Doing("lock", "for the other end of a pipe")),
    (re.compile(r"do_wait"), Doing("lock", "for a process of its own")),
    (re.compile(r"tcp_|inet_csk|sk_wait|unix_stream|skb_wait"), ELSEWHERE),
    (re.compile(r"nanosleep"), Doing("sleep", SLEEPS)),
)
LONG_SLEEP_S = 60.0  # longer than a step may take
SLEEP = re.compile(r"\bsleep\(\s*(\d[\d_]*\.?\d*)\s*\)")
AGAIN = Doing("dormant", "in a loop that sleeps and looks again")
POLLED_FOR: tuple[tuple[re.Pattern[str], Doing], ...] = (
    (
        re.compile(r"exists\(|is_file\(|isfile\(|is_dir\(|isdir\(|listdir\(|glob\(|\.stat\("),
        Doing("service", "for a file that somebody else must write"),
    ),
    (
        re.compile(r"url|http|socket|request|connect|response|status|ready", re.I),
        ELSEWHERE,
    ),
    (
        re.compile(r"is_set\(|locked\(|empty\(|qsize\(|is_alive\(|\.poll\(|done\(|acquire\("),
        Doing("lock", "for another thread or process of its own"),
    ),
)


def bare(frame: Frame) -> str:
    """The name of a frame's function without its class, which is shown from Python 3.11 on."""
    return frame.function.rpartition(".")[2]


def inner_frames(stack: Sequence[Frame]) -> list[Frame]:
    """The frames below the user's innermost one (``stack`` is innermost first)."""
    inner: list[Frame] = []
    for frame in stack:
        if not NOT_THE_USERS.search(frame.path):
            break
        inner.append(frame)
    return inner


def collective_of(stack: Sequence[Frame]) -> tuple[str | None, str]:
    """The collective the innermost frames are in, by torch.distributed's public name, and how it came about.

    Of several (``broadcast_object_list`` calls ``broadcast``) the one the caller wrote. ``stack`` is innermost first.
    """
    inner = inner_frames(stack)
    for frame in reversed(inner):
        if frame.path.endswith(C10D) and not frame.function.startswith("_") and "." not in frame.function:
            return frame.function, _feature(inner)
    if functional := next((frame for frame in reversed(inner) if frame.path.endswith(FUNCTIONAL)), None):
        public = functional.function.lstrip("_")
        name = {"all_gather_tensor": "all_gather_into_tensor"}.get(public, public)
        return (name if name in COLLECTIVES else _redistributed(inner)), _feature(inner)
    for frame in reversed(inner):
        for (path, function), (name, via) in IMPLIED.items():
            if bare(frame) == function and frame.path.endswith(path):
                return name, via or _feature(inner)
    return None, ""


def doing(stack: Sequence[Frame], text: str) -> Doing | None:
    """What the innermost frames wait for, where they tell. ``text``: the source line of the user's innermost frame."""
    inner = inner_frames(stack)
    told = [found for frame in inner if (found := _of_frame(frame))]
    if told:  # the outermost says most: a queue that waits for a lock is a queue
        return max(reversed(told), key=lambda one: SAYS_MORE.get(one.kind, 0))
    if any("/torch/utils/data/" in frame.path for frame in stack):
        return Doing("loader", "for its data loader")
    if inner and not _is_thin(inner):
        return None
    return next((found for pattern, found in LINES if pattern.search(text)), None)


def in_kernel(waits_in: str) -> Doing | None:
    """What a thread waits for by the kernel function it sleeps in."""
    return next((found for pattern, found in KERNEL if pattern.search(waits_in)), None)


def polled_for(text: str) -> Doing | None:
    """What a loop asks for again and again, by the text of its condition and body."""
    return next((found for pattern, found in POLLED_FOR if pattern.search(text)), None)


def sleeps_for_s(text: str) -> float | None:
    """How long the sleep on a line lasts, where a number says so."""
    found = SLEEP.search(text)
    return float(found[1].replace("_", "")) if found else None


def is_idle(stack: Sequence[Frame]) -> bool:
    """Whether a thread beside the main one visibly waits: for a lock, a queue, an event."""
    return bool(stack) and _of_frame(stack[0]) is not None


def _of_frame(frame: Frame) -> Doing | None:
    for path, function, found in FRAMES:
        if path in frame.path and function in ("", bare(frame)) and NOT_THE_USERS.search(frame.path):
            return found
    return None


def _is_thin(inner: Sequence[Frame]) -> bool:
    """Whether the frames are mere wrappers (a context manager's, a decorator's) around what the line calls."""
    return all(frame.path.endswith(("/contextlib.py", "/functools.py", "/codecs.py")) for frame in inner)


def _feature(inner: Sequence[Frame]) -> str:
    for frame in reversed(inner):
        for path, function, known_as in FEATURES:
            if path in frame.path and function in ("", bare(frame)):
                return known_as
    return ""


def _redistributed(inner: Sequence[Frame]) -> str:
    """What a sharded tensor's change of layout calls: gathered for the state dict, reduced for a norm."""
    return "all_reduce" if any("_reduce" in frame.function for frame in inner) else "all_gather_into_tensor"


def user_frames(stack: Sequence[Frame]) -> list[Frame]:
    """The user's own frames, outermost first; where all code is installed code, that program's own."""
    mine = [frame for frame in reversed(stack) if not NOT_THE_USERS.search(frame.path)]
    if mine:
        return mine[1:] if _is_spawner(mine[0], stack) else mine
    installed = [frame for frame in reversed(stack) if not NOT_OURS_EITHER.search(frame.path)]
    return [frame for frame in installed if _package(frame) == _package(installed[0])]


def _is_spawner(frame: Frame, stack: Sequence[Frame]) -> bool:
    """Whether this is the line by which multiprocessing starts a process: nobody wrote it."""
    return frame.path == "<string>" and any(inner.path.endswith(SPAWNED) for inner in stack)


def _package(frame: Frame) -> str:
    """The installed package a frame's file belongs to."""
    return re.split(r"/(?:site|dist)-packages/", frame.path)[-1].split("/")[0]
