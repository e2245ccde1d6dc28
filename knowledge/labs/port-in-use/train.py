"""Train and offer the loss to the monitoring of the cluster."""

import http.server
import threading
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

METRICS_PORT = 29641


class Metrics(http.server.BaseHTTPRequestHandler):
    loss = 0.0

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"train_loss {Metrics.loss}\n".encode())


def offer_metrics():
    server = http.server.HTTPServer(("", METRICS_PORT), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    if rank == 0:
        offer_metrics()
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(20):
        inputs = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        Metrics.loss = loss.item()
    if rank == 0:
        with urllib.request.urlopen(f"http://127.0.0.1:{METRICS_PORT}", timeout=5) as page:
            print(f"trained, loss {loss.item():.3f}; the monitoring has {page.read().decode().strip()}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
