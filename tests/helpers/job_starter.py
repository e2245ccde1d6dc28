"""Start a job as a user's shell would: in a terminal, together with a service, or rank by rank by hand.

Runs as a script, so that the terminal and the service's socket stay open as long as the job.
"""

import argparse
import ctypes
import os
import socket
import subprocess
import threading

CLONE_NEWNET = 0x40000000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--terminal", action="store_true", help="standard input is a terminal at which nobody types")
    parser.add_argument("--service", action="store_true", help="SERVICE=host:port takes connections and says nothing")
    parser.add_argument("--own-network", action="store_true", help="a network namespace with nothing but lo")
    parser.add_argument("--ranks", default="", help="comma-separated: start one process for each, with RANK set")
    parser.add_argument("--world", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.own_network:
        _leave_network()
    stdin = os.openpty()[1] if options.terminal else None
    environ = dict(os.environ)
    if options.service:
        environ["SERVICE"] = _silent_service()
    command = options.command[1:]  # after "--"
    ranks = [int(rank) for rank in options.ranks.split(",") if rank]
    places = [{"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(options.world)} for r in ranks] or [{}]
    started = [subprocess.Popen(command, env={**environ, **place}, stdin=stdin) for place in places]
    for process in started:
        process.wait()


def _leave_network() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def _silent_service() -> str:
    listener = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def serve() -> None:
        while True:
            kept.append(listener.accept()[0])

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


if __name__ == "__main__":
    main()
