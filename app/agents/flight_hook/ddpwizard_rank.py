"""Additions of ``ddpwizard run`` to a rank.

They are torch's worker server on a unix socket, faulthandler on a free signal, a copy of the rank's output, and a
record that identifies the rank. Everything goes into the run's private directory; nothing here may disturb the job
(Python >= 3.9, torch >= 2.1, standard library).
"""

import atexit
import ctypes
import faulthandler
import fcntl
import functools
import json
import os
import signal
import socket
import sys
import termios
import threading
import time
import traceback

from ddpwizard_output import OutputCopy

FOLDER = os.environ["DDPWIZARD_FLIGHT_DIR"]
KEPT = ("RANK", "WORLD_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCH", "NCCL_", "GLOO_", "SLURM_", "OMPI_", "PMI")
KEPT += ("CUDA_VISIBLE", "OMP_NUM", "ACCELERATE", "DDPWIZARD_")
SECRET = ("JWT", "TOKEN", "KEY", "SECRET", "PASSWORD")
ERROR_LIMIT = 16384  # of the message of the error that ends a rank
LINE_LIMIT = 4096  # of a line without an end so far
PARTS_LIMIT = 64  # of such a line, until they are joined and cut
COPIED = "DDPWIZARD_ERRORS_COPIED"  # set in a rank whose standard error is copied, and so in its children
COPIER_LIMIT_S = 5.0  # for the answer of the process that copies standard error
SHOWN_AS = "<ddpwizard run>"  # the file of our frames in a stack, to tell them from the user's code

note = {}
output = OutputCopy(FOLDER)
started = []  # pids in which everything was started; a forked child has none of it


def imported(c10d):
    """Handle the import of torch.distributed: start at once in a rank, and in any case when it joins a group."""
    if os.environ.get("RANK", "").isdigit() and "--multiprocessing-fork" not in command_line():
        start()
    original = c10d.init_process_group

    def init_process_group(*args, **kwargs):
        before_init(kwargs)
        result = original(*args, **kwargs)
        after_init(c10d)
        return result

    init_process_group.__code__ = init_process_group.__code__.replace(co_filename=SHOWN_AS)
    c10d.init_process_group = functools.wraps(original)(init_process_group)


def failed(kind, value, trace):
    """Record an error that ends a rank, or the command itself, before it has imported torch.distributed."""
    if os.getpid() not in started and issubclass(kind, Exception) and not started_by_rank():
        write_first_record()
        text = "".join(traceback.format_exception(kind, value, trace)).rstrip("\n")
        # Of an error in the syntax of the script itself, Python shows the place without this line.
        append_to_log(text if "Traceback (" in text else "Traceback (most recent call last):\n" + text)
        record_exit(os.getpid(), value)


def started_by_rank():
    """Return whether the parent is a rank, or for a process that is none, part of the job: it may handle the error."""
    own = next(name for name in ("LOCAL_RANK", "RANK", "DDPWIZARD_FLIGHT_DIR") if name in os.environ)
    try:
        with open("/proc/%d/environ" % os.getppid(), "rb") as file:
            return any(each.startswith(own.encode() + b"=") for each in file.read().split(b"\0"))
    except OSError:
        return False


def log_errors(function):
    """Wrap a function so that errors are written into the directory instead of raised."""

    @functools.wraps(function)
    def without_errors(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            log_message("%s: %s: %s" % (function.__name__, type(error).__name__, error))

    return without_errors


@log_errors
def before_init(arguments):
    """Start before the default group is joined; children of mp.spawn know their rank only now."""
    start()
    rank, world_size = arguments.get("rank", -1), arguments.get("world_size", -1)
    if isinstance(rank, int) and rank >= 0:
        write_record(rank=rank, world_size=world_size if isinstance(world_size, int) and world_size > 0 else None)


@log_errors
def after_init(c10d):
    """Record that the default group exists."""
    write_record(rank=c10d.get_rank(), world_size=c10d.get_world_size())


def start():
    """Start everything once in this process."""
    if os.getpid() in started:
        return
    started[:] = [os.getpid()]
    write_first_record()
    set_old_recorder_names()
    dump_stacks_on_signal()
    copy_output()
    atexit.register(record_exit, os.getpid())
    start_worker_server()


@log_errors
def write_first_record():
    torch = sys.modules.get("torch")
    with open("/proc/self/stat") as stat:
        started_ticks = int(stat.read().rpartition(")")[2].split()[19])
    environ = {name: value for name, value in os.environ.items() if name.startswith(KEPT) and not name.endswith(SECRET)}
    rank, world_size = environ.get("RANK", ""), environ.get("WORLD_SIZE", "")
    note.clear()
    write_record(
        pid=os.getpid(),
        started_ticks=started_ticks,
        rank=int(rank) if rank.isdigit() else None,
        world_size=int(world_size) if world_size.isdigit() else None,
        main_thread="0x%016x" % threading.main_thread().ident,
        command=command_line(),
        cwd=os.getcwd(),
        python=sys.executable,
        torch=str(getattr(torch, "__version__", "")),
        environ=environ,
    )


@log_errors
def set_old_recorder_names():
    """Set the recorder's variables by their older names too, which newer torch warns about (renamed in 2.8)."""
    version = note.get("torch", "").split(".")
    if [int(part) if part.isdigit() else 0 for part in version[:2]] < [2, 8]:
        for new, old in (
            ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
            ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        ):
            if os.environ.get(new):
                os.environ.setdefault(old, os.environ[new])


@log_errors
def dump_stacks_on_signal():
    """Register faulthandler on the last real-time signal without a handler."""
    for number in range(signal.SIGRTMAX - 1, signal.SIGRTMIN, -1):
        if signal.getsignal(number) is signal.SIG_DFL:
            file = open(file_path(".stacks"), "w")  # noqa: SIM115  # open as long as the process lives
            faulthandler.register(number, file=file, all_threads=True, chain=False)
            if not faulthandler.is_enabled():  # gloo aborts a rank in a thread of its own, without a traceback
                faulthandler.enable(file=file, all_threads=True)
            write_record(signal=number)
            return


@log_errors
def copy_output():
    """Copy the output of print and logging, with the time, in addition to its normal destination.

    Of standard error also what C++ writes, if the run's copier takes it.
    """
    if sys.stdout is not None:
        copy_stream(sys.stdout)
    if sys.stderr is not None and not (redirect_errors() and sys.stderr.fileno() == 2):
        copy_stream(sys.stderr)


@log_errors
def redirect_errors():
    """Let the run's copier, if there is one, pass on what is written to descriptor 2. Return whether it does.

    Not in a process started by a rank: the copier would write into a pipe that it has to read itself.
    """
    place = os.path.join(FOLDER, "errors.sock")
    if COPIED in os.environ or not os.path.exists(place):
        return False
    original = os.dup(2)
    with socket.socket(socket.AF_UNIX) as copier:
        copier.settimeout(COPIER_LIMIT_S)
        copier.connect(place)
        source, rank_end = open_terminal(original) if os.isatty(original) else os.pipe()
        socket.send_fds(copier, [b"%d" % os.getpid()], [source, original])
        taken = copier.recv(1)
    if taken:
        sys.stderr.flush()
        os.dup2(rank_end, 2)
        os.environ[COPIED] = "1"
    for descriptor in (original, source, rank_end):
        os.close(descriptor)
    return bool(taken)


def open_terminal(original):
    """Return both ends of a pseudo-terminal of this size that changes nothing of what is written."""
    source, rank_end = os.openpty()
    attributes = termios.tcgetattr(rank_end)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG)
    termios.tcsetattr(rank_end, termios.TCSANOW, attributes)
    fcntl.ioctl(rank_end, termios.TIOCSWINSZ, fcntl.ioctl(original, termios.TIOCGWINSZ, bytes(8)))
    return source, rank_end


def copy_stream(stream):
    original, unfinished = stream.write, []

    def write(text):
        result = original(text)
        if "\n" in text:
            whole, _, rest = text.rpartition("\n")
            append_to_log("".join(unfinished) + whole if unfinished else whole)
            unfinished[:] = [rest] if rest else []
        elif "\r" in text:
            unfinished[:] = [text.rpartition("\r")[2]]  # as on a terminal: a progress bar overwrites itself
        else:
            unfinished.append(text)  # print writes each of its arguments
            if len(unfinished) > PARTS_LIMIT:
                unfinished[:] = ["".join(unfinished)[-LINE_LIMIT:]]
        return result

    write.__code__ = write.__code__.replace(co_filename=SHOWN_AS)
    stream.write = write


@log_errors
def append_to_log(text):
    output.append(text)


@log_errors
def start_worker_server():
    """Start torch's own server without the message that it writes to standard error."""
    from torch._C._distributed_c10d import _WorkerServer

    log = os.open(os.path.join(FOLDER, "hook.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    shown = os.dup(2)
    try:
        os.dup2(log, 2)
        server = _WorkerServer(file_path(".sock"), -1)
    finally:
        os.dup2(shown, 2)
        os.close(shown)
        os.close(log)
    # Never destroyed: its destructor would wait for its threads, which a forked child does not have.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


@log_errors
def record_exit(pid, error=None):
    if os.getpid() == pid:
        error = error or getattr(sys, "last_value", None)
        what = "%s: %s" % (type(error).__name__, error) if error is not None else "exit"
        write_record(ended=what[:ERROR_LIMIT], ended_at=time.time())


def command_line():
    with open("/proc/self/cmdline", "rb") as file:
        return file.read().rstrip(b"\0").decode(errors="replace").split("\0")


def write_record(**more):
    note.update(more)
    draft = file_path(".draft")
    with open(draft, "w") as file:
        json.dump(note, file)
    os.replace(draft, file_path(".json"))


def log_message(text):
    try:
        with open(os.path.join(FOLDER, "hook.log"), "a") as log:
            log.write("pid %d: %s\n" % (os.getpid(), text))
    except OSError:
        pass


def file_path(ending):
    return os.path.join(FOLDER, "%d%s" % (os.getpid(), ending))
