"""Find out what a blocked rank waits for, from its innermost frames and the source line it is at.

A C call (``lock.acquire()``, ``input()``, ``work.wait()``) has no Python frame: its source line is read instead.
The frames of torch are those of torch 2.13, observed in real jobs.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...training_script.frame import StackFrame
from .frames import NOT_THE_USERS, function_name, inner_frames

WaitKind = Literal[
    "loader", "person", "service", "lock", "gil", "feeder", "files", "sleep", "dormant", "store", "gpu", "exit"
]


class WaitReason(NamedTuple):
    """The reason why a rank waits outside any collective; ``what`` completes the sentence "it waits …"."""

    kind: WaitKind
    what: str


PERSON = "for a person"
WHILE_EXITING = ", while the process exits"  # at the end of a reason
WAITS_FOR_QUEUE = WaitReason("lock", "for an item in a queue")
UNTIL_SLEEP_ENDS = "until its sleep is over"
WAITS_FOR_NETWORK = WaitReason("service", "for an answer from another machine")
WAITS_FOR_GPU = WaitReason("gpu", "for work that it has queued on the GPU")
WAITS_FOR_CHILD = WaitReason("lock", "for a process it started")
HOLDS_GIL = WaitReason("gil", "in a C call that holds the GIL: none of its other threads can run")
CLIENTS = ("curl", "wget", "aws", "gsutil", "gcloud", "azcopy", "rclone", "rsync", "scp", "ssh", "git", "hf", "nc")
# Part of the path, function ("": any) -> wait reason. The first match counts for a frame.
FRAMES: tuple[tuple[str, str, WaitReason], ...] = (
    *(
        (path, "", WaitReason("person", f"{PERSON}, in a debugger"))
        for path in ("/pdb.py", "/bdb.py", "/debugpy/", "/pydevd", "/ipdb/", "/pudb/", "/remote_pdb.py")
    ),
    *(
        (p, "", WaitReason("person", f"{PERSON} to type"))
        for p in ("/getpass.py", "/click/termui.py", "/rich/prompt.py")
    ),
    ("/code.py", "interact", WaitReason("person", f"{PERSON} to type")),
    ("/IPython/terminal/", "", WaitReason("person", f"{PERSON} to type")),
    ("/torch/utils/data/", "", WaitReason("loader", "for its data loader")),
    ("/webdataset/", "", WaitReason("loader", "for its data loader")),
    ("/streaming/base/", "", WaitReason("loader", "for its data loader")),
    *(
        (path, "", WAITS_FOR_NETWORK)
        for path in (
            *("/ssl.py", "/http/client.py", "/urllib/request.py", "/socket.py", "/urllib3/", "/requests/", "/httpx/"),
            *("/httpcore/", "/aiohttp/", "/botocore/", "/boto3/", "/grpc/", "/wandb/", "/mlflow/", "/comet_ml/"),
            *("/huggingface_hub/", "/neptune/", "/google/cloud/", "/redis/", "/psycopg", "/pymysql/", "/pymongo/"),
            *("/smtplib.py", "/ftplib.py", "/imaplib.py", "/paramiko/", "/xmlrpc/client.py", "/zmq/", "/kafka/"),
            *("/fsspec/", "/s3fs/", "/gcsfs/", "/clearml/", "/telnetlib.py", "/poplib.py", "/websockets/"),
        )
    ),
    ("/threading.py", "_shutdown", WaitReason("exit", f"for its other threads to end{WHILE_EXITING}")),
    (
        "/multiprocessing/util.py",
        "_exit_function",
        WaitReason("exit", f"for a process it started to end{WHILE_EXITING}"),
    ),
    (
        "/concurrent/futures/thread.py",
        "_python_exit",
        WaitReason("exit", f"for its other threads to end{WHILE_EXITING}"),
    ),
    ("/subprocess.py", "", WAITS_FOR_CHILD),
    ("/multiprocessing/queues.py", "", WAITS_FOR_QUEUE),
    ("/queue.py", "", WAITS_FOR_QUEUE),
    ("/multiprocessing/connection.py", "", WaitReason("lock", "for another of its own processes")),
    ("/multiprocessing/", "", WaitReason("lock", "for another of its own processes")),
    ("/concurrent/futures/", "", WaitReason("lock", "for one of its own tasks")),
    ("/logging/__init__.py", "acquire", WaitReason("lock", "for a logger's lock")),
    ("<frozen importlib._bootstrap>", "acquire", WaitReason("lock", "for the import lock")),
    ("/filelock/", "", WaitReason("lock", "for a lock file")),
    ("/portalocker/", "", WaitReason("lock", "for a lock file")),
    ("/fasteners/", "", WaitReason("lock", "for a lock file")),
    ("/asyncio/", "", WaitReason("lock", "for one of its own tasks")),
    ("/selectors.py", "", WaitReason("lock", "for an event")),
    ("/threading.py", "join", WaitReason("lock", "for another thread to end")),
    ("/threading.py", "_wait_for_tstate_lock", WaitReason("lock", "for another thread to end")),
    ("/threading.py", "", WaitReason("lock", "for a lock or an event")),
    ("/torch/serialization.py", "", WaitReason("files", "for a file")),
    ("/shutil.py", "", WaitReason("files", "for a file")),
)
PRIORITY = {"person": 4, "exit": 3, "loader": 2, "service": 1}  # if one stack has several kinds

# The source line of the user's innermost frame, if what it calls has no frame of its own.
LINES: tuple[tuple[re.Pattern[str], WaitReason], ...] = (
    (re.compile(r"\b(input|breakpoint|raw_input)\("), WaitReason("person", f"{PERSON} to type")),
    (re.compile(r"\bstdin\b"), WaitReason("person", f"{PERSON} to type")),
    (re.compile(r"\bset_trace\("), WaitReason("person", f"{PERSON}, in a debugger")),
    (re.compile(r"\bsignal\.pause\(|\bsigwait(info)?\("), WaitReason("person", "for a signal")),
    (
        re.compile(r"\.(recv|recv_into|recvfrom|accept|connect|sendall|makefile|getresponse)\(|\burlopen\("),
        WAITS_FOR_NETWORK,
    ),
    (
        re.compile(r"\b(getaddrinfo|gethostbyname|create_connection)\("),
        WAITS_FOR_NETWORK,
    ),
    (re.compile(r"\b(flock|lockf)\("), WaitReason("lock", "for a lock file")),
    (re.compile(r"\.acquire\("), WaitReason("lock", "for a lock")),
    (re.compile(r"\bos\.(wait|waitpid|wait3|wait4|waitid)\("), WAITS_FOR_CHILD),
    (
        re.compile(r"\b(async\s+)?with\b.*(lock|mutex|semaphore|condition|\bcond\b|sem\b)", re.I),
        WaitReason("lock", "for a lock"),
    ),
    (re.compile(r"\.join\(\s*\)"), WaitReason("lock", "for another thread to end")),
    (re.compile(r"(queue|\bq|inbox|mailbox|results?)\w*\.(get|put)\(", re.I), WAITS_FOR_QUEUE),
    (re.compile(r"\bselect\.(select|poll|epoll)\(|\.poll\("), WaitReason("lock", "for an event")),
    (re.compile(r"\bos\.(read|open)\(|\bopen\("), WaitReason("lock", "for the other end of a pipe or file")),
    (re.compile(r"\bsleep\("), WaitReason("sleep", UNTIL_SLEEP_ENDS)),
    (re.compile(r"\bstore\w*\.(get|wait)\(", re.I), WaitReason("store", "for a key that another rank must set")),
)
# The kernel function a thread sleeps in (Linux 6.18), if neither frames nor source line match.
KERNEL: tuple[tuple[re.Pattern[str], WaitReason], ...] = (
    (re.compile(r"nfs|rpc_wait|fuse|ceph|cl_sync|ldlm|smb|cifs"), WaitReason("service", "for a file server to answer")),
    (re.compile(r"n_tty_read"), WaitReason("person", f"{PERSON} to type")),
    (re.compile(r"futex"), WaitReason("lock", "for a lock or another of its own threads")),
    (re.compile(r"pipe_(read|write)|wait_for_partner"), WaitReason("lock", "for the other end of a pipe")),
    (re.compile(r"do_wait"), WaitReason("lock", "for one of its own processes")),
    (re.compile(r"tcp_|inet_csk|sk_wait|unix_stream|skb_wait"), WAITS_FOR_NETWORK),
    (re.compile(r"nanosleep"), WaitReason("sleep", UNTIL_SLEEP_ENDS)),
)
LONG_SLEEP_S = 60.0  # longer than a training step should take
SLEEP = re.compile(r"\bsleep\(\s*(\d[\d_]*\.?\d*)\s*\)")
POLLING = WaitReason("dormant", "in a loop that sleeps and checks again")
POLLED_VALUES: tuple[tuple[re.Pattern[str], WaitReason], ...] = (
    (
        re.compile(r"exists\(|is_file\(|isfile\(|is_dir\(|isdir\(|listdir\(|glob\(|\.stat\("),
        WaitReason("service", "for a file that another process must write"),
    ),
    (
        re.compile(r"url|http|socket|request|connect|response|status|ready", re.I),
        WAITS_FOR_NETWORK,
    ),
    (
        re.compile(r"is_set\(|locked\(|empty\(|qsize\(|is_alive\(|\.poll\(|done\(|acquire\("),
        WaitReason("lock", "for another of its own threads or processes"),
    ),
)


def wait_reason(stack: Sequence[StackFrame], text: str) -> WaitReason | None:
    """Return what the innermost frames wait for, or None if not known.

    ``text``: the source line of the user's innermost frame.
    """
    inner = inner_frames(stack)
    reasons = [found for frame in inner if (found := _frame_reason(frame))]
    if reasons:  # prefer the outermost match: a queue that waits for its lock is reported as a queue
        return max(reversed(reasons), key=lambda reason: PRIORITY.get(reason.kind, 0))
    if any("/torch/utils/data/" in frame.path for frame in stack):
        return WaitReason("loader", "for its data loader")
    if inner and not _has_only_wrappers(inner):
        return None
    return next((found for pattern, found in LINES if pattern.search(text)), None)


def kernel_wait_reason(waits_in: str) -> WaitReason | None:
    """Return what a thread waits for, judging by the kernel function it sleeps in."""
    return next((found for pattern, found in KERNEL if pattern.search(waits_in)), None)


def polled_value(text: str) -> WaitReason | None:
    """Return what a polling loop waits for, judging by the text of its condition and body."""
    return next((found for pattern, found in POLLED_VALUES if pattern.search(text)), None)


def sleeps_for_s(text: str) -> float | None:
    """Return the duration of the sleep on a source line, or None if it is not a constant."""
    found = SLEEP.search(text)
    return float(found[1].replace("_", "")) if found else None


def is_idle(stack: Sequence[StackFrame]) -> bool:
    """Return whether a thread other than the main one is known to wait: for a lock, a queue, an event."""
    return bool(stack) and _frame_reason(stack[0]) is not None


def _frame_reason(frame: StackFrame) -> WaitReason | None:
    for path, function, found in FRAMES:
        if path in frame.path and function in ("", function_name(frame)) and NOT_THE_USERS.search(frame.path):
            return found
    return None


def _has_only_wrappers(inner: Sequence[StackFrame]) -> bool:
    """Return whether all frames are wrappers (context managers, decorators) around what the source line calls."""
    return all(frame.path.endswith(("/contextlib.py", "/functools.py", "/codecs.py")) for frame in inner)
