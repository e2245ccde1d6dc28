"""The container a process runs in, by the path of its control group."""

import os
import re

from . import proc_files

# Docker ("/docker/ID", "docker-ID.scope"), containerd and CRI-O under Kubernetes ("cri-containerd-ID.scope",
# "/kubepods/…/ID"), Podman ("libpod-ID.scope"): an id of 64 hexadecimal digits; LXC and systemd-nspawn have names.
CONTAINER_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)")
NAMED = re.compile(r"/lxc(?:\.payload[./]|/)([^/\n]+)|/machine-?([^/\n]+)\.scope")
SHOWN = 12  # digits of an id, as `docker ps` shows it


def container_name(pid: int) -> str:
    """The short id or the name of its container, empty where it is in none that shows."""
    return container_of(proc_files.read_text_of(pid, "cgroup"))


def container_of(cgroups: str) -> str:
    """The same, from the text of /proc/PID/cgroup."""
    for line in cgroups.splitlines():
        if found := CONTAINER_ID.search(line):
            return found[1][:SHOWN]
        if found := NAMED.search(line):
            return found[1] or found[2]
    return ""


def foreign_container(pid: int) -> str:
    """The container of a process where it is not ours as well."""
    found = container_name(pid)
    return found if found and found != container_name(os.getpid()) else ""
