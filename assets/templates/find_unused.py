"""List the parameters that get no gradient. Made by ddpwizard. Run it unchanged first, in one process without DDP:

    python find_unused.py

Then call unused_parameters with your model and one batch. Fixes, best first: use the parameter in the loss; remove it
from the model, or set requires_grad_(False) before DDP wraps the model; if the branch taken changes from step to step,
pass find_unused_parameters=True to DistributedDataParallel, which traverses the graph in every step.
"""

from collections.abc import Callable

import torch


def unused_parameters(model: torch.nn.Module, loss_of: Callable[[torch.nn.Module], torch.Tensor]) -> list[str]:
    """Return the names of parameters that require a gradient but get none in a forward and backward pass."""
    model.zero_grad(set_to_none=True)
    loss_of(model).backward()
    names = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    model.zero_grad(set_to_none=True)
    return names


class Example(torch.nn.Module):
    """A model whose forward does not use one of its heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 1)
        self.spare_head = torch.nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(inputs))


if __name__ == "__main__":
    for name in unused_parameters(Example(), lambda model: model(torch.randn(4, 8)).sum()):
        print(name)
