"""Container of a process, from the path of its control group."""

import os
import re

from . import proc_files

# Docker ("/docker/ID", "docker-ID.scope"), containerd and CRI-O under Kubernetes ("cri-containerd-ID.scope",
# "/kubepods/…/ID"), Podman ("libpod-ID.scope"): an id of 64 hexadecimal digits; LXC and systemd-nspawn have names.
CONTAINER_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")
NAMED = re.compile(r"/lxc(?:\.payload[./]|/)([^/\n]+)|/machine-?([^/\n]+)\.scope")
SHOWN = 12  # digits of an id, as `docker ps` shows it


def container_name(pid: int) -> str:
    """Return the short id or the name of the container, or "" if the path names none."""
    return container_of(proc_files.read_text_of(pid, "cgroup"))


def container_of(cgroups: str) -> str:
    """Return the container named in the text of /proc/PID/cgroup, or "" if it names none."""
    for line in cgroups.splitlines():
        if found := CONTAINER_ID.search(line):
            return found[1][:SHOWN]
        if found := NAMED.search(line):
            return found[1] or found[2]
    return ""


def container_of_others(pid: int) -> str:
    """Return the container of a process, or "" if it is the one we run in."""
    found = container_name(pid)
    return found if found and found != container_name(os.getpid()) else ""
