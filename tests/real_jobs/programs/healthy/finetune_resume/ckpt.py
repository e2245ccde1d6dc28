import torch


def save_checkpoint(model, path, steps):
    torch.save({"model": model.module.state_dict(), "steps": steps}, path)


def load_checkpoint(model, path):
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    return state["steps"]
