"""The digits of scikit-learn; where it is not installed, made ones of the same shape."""

import torch


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1,797 pictures of 8 x 8 pixels from 0 to 1, flat, and the digit of each."""
    try:
        from sklearn import datasets
    except ImportError:
        return made_digits()
    pixels, digits = datasets.load_digits(return_X_y=True)
    return torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(digits)


def made_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return ten random patterns with noise."""
    generator = torch.Generator().manual_seed(7)
    patterns = torch.rand(10, 64, generator=generator)
    digits = torch.randint(10, (1797,), generator=generator)
    noise = torch.randn(1797, 64, generator=generator)
    return (patterns[digits] + 0.3 * noise).clamp(0, 1).mul(16).round() / 16, digits
