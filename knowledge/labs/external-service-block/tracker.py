"""The client of the experiment tracker, and the tracker of this machine."""

import json
import socket
import urllib.request


def start_tracker():
    """Start the tracker; it takes requests, but its disk is full and it never answers one."""
    server = socket.create_server(("127.0.0.1", 0), backlog=16)
    return server, f"http://127.0.0.1:{server.getsockname()[1]}/api/runs"


class Run:
    def __init__(self, url):
        self.url = url

    def log(self, **values):
        request = urllib.request.Request(self.url, json.dumps(values).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            reply.read()
