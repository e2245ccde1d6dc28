"""The client of the experiment tracker, and the tracker of this machine."""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Tracker(BaseHTTPRequestHandler):
    """It takes reports, but its disk is full and it never answers one."""

    reports = set()

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.reports.add(self.rfile.read(int(self.headers["Content-Length"])))
        threading.Event().wait()

    def log_message(self, *args):
        pass


def start_tracker():
    """Start the tracker of this machine, and return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Tracker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/api/runs"


class Run:
    def __init__(self, url):
        self.url = url
        with urllib.request.urlopen(url, timeout=3):
            print("connected to the tracker")

    def log(self, **values):
        request = urllib.request.Request(self.url, json.dumps(values).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            reply.read()
