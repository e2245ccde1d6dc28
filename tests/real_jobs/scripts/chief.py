"""A loop in the manner of older frameworks: one chief, many workers."""

import os

import torch
import torch.distributed as dist

IS_CHIEF = os.environ.get("RANK", "0") == "0"


class Hook:
    def after_step(self, step, weights):
        pass


class Summary(Hook):
    def __init__(self, every):
        self.every = every

    def after_step(self, step, weights):
        if step % self.every:
            return
        norm = weights.norm().reshape(1)
        dist.reduce(norm, dst=0)  # HANG
        print("norm", norm.item() / dist.get_world_size())


class Session:
    def __init__(self, hooks):
        self.hooks = hooks

    def run(self, steps):
        weights = torch.zeros(8)
        for step in range(1, steps + 1):
            gradient = torch.randn(8)
            dist.all_reduce(gradient)  # PEERS
            weights -= 0.1 * gradient
            for hook in self.hooks:
                hook.after_step(step, weights)
            if step == 3:
                print("warmed up", flush=True)


def main():
    dist.init_process_group("gloo")
    hooks = []
    if IS_CHIEF:
        hooks.append(Summary(every=4))
    Session(hooks).run(40)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
