"""Agent: resolve a host name and, with a port, try to connect to it. Standard library only.

    python lookup.py HOST [PORT CONNECT_LIMIT_S]

Both can block for minutes in the C library or the kernel, so they run in a process that can be killed. Answers JSON
lines on the descriptor named by DDPWIZARD_ANSWER_FD, each as soon as it is known: ``{"addresses": […], "problem":
"…"}``, then ``{"connected": bool, "problem": "…"}``.
"""

import errno
import json
import os
import socket
import sys
import time

REFUSED = "Connection refused"


def print_fact(fact):
    """Write one line of the answer."""
    os.write(int(os.environ["DDPWIZARD_ANSWER_FD"]), json.dumps(fact).encode() + b"\n")


def resolve(host):
    """Return the addresses in the resolver's order, and the error if there are none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return [], getattr(error, "strerror", None) or str(error)
    return list(dict.fromkeys(address[0] for _, _, _, _, address in found)), ""


def connect(addresses, port, limit_s):
    """Return whether one of the addresses accepts a TCP connection within the limit, and the error if none does."""
    until = time.monotonic() + limit_s
    problem = ""
    for at, address in enumerate(addresses):
        left_s = max(0.1, (until - time.monotonic()) / (len(addresses) - at))
        try:
            socket.create_connection((address, port), timeout=left_s).close()
            return True, ""
        except socket.timeout:
            problem = problem or "No answer within %.0f s" % limit_s
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                problem = REFUSED
            problem = problem or error.strerror or str(error)
    return False, problem


def main():
    addresses, problem = resolve(sys.argv[1])
    print_fact({"addresses": addresses, "problem": problem})
    if addresses and len(sys.argv) > 3:
        connected, problem = connect(addresses, int(sys.argv[2]), float(sys.argv[3]))
        print_fact({"connected": connected, "problem": problem})


if __name__ == "__main__":
    main()
