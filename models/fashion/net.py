"""The embedded classifier: a small convolutional net over 28×28 grey images, and how it is trained. Needs torch."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from models.fashion.raw import PIXEL_MEAN, PIXEL_STD


@dataclass(frozen=True)
class Recipe:
    """Everything the training depends on besides the images. The thread count fixes the order of the sums."""

    seed: int = 0
    epochs: int = 10
    batch: int = 128
    peak_rate: float = 0.2
    weight_decay: float = 5e-4
    dropout: float = 0.2
    shift: int = 2
    threads: int = 2


class FashionNet(nn.Module):
    """Four convolutions, global average pooling to 128 features, and a linear head."""

    def __init__(self, n_classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolution(1, 32), nn.MaxPool2d(2),
            *_convolution(32, 64), *_convolution(64, 64), nn.MaxPool2d(2),
            *_convolution(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(128, n_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.dropout(self.features(x)))
        return logits


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def normalise(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """uint8 [N, 28, 28, 1] → float32 [N, 1, 28, 28], the arithmetic that the bundle carries in its graph."""
    x = torch.from_numpy(pixels.astype(np.float32)).permute(0, 3, 1, 2) / 255
    return ((x - PIXEL_MEAN) / PIXEL_STD).contiguous()


def train(
    pixels: NDArray[np.uint8],
    labels: NDArray[np.int64],
    n_classes: int,
    recipe: Recipe | None = None,
    report: Callable[[int, float], None] = lambda epoch, loss: None,
) -> FashionNet:
    """A net trained on the images; `report` is told the mean loss of every epoch."""
    recipe = recipe or Recipe()
    with _reproducible(recipe):
        net = FashionNet(n_classes, recipe.dropout).train()
        _descend(net, normalise(pixels), torch.from_numpy(labels), recipe, report)
    return net.eval()


@contextlib.contextmanager
def _reproducible(recipe: Recipe) -> Iterator[None]:
    """The recipe's seed and threads and deterministic algorithms, with torch's own settings put back afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(recipe.threads)
    torch.use_deterministic_algorithms(True)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def _descend(
    net: FashionNet, x: torch.Tensor, y: torch.Tensor, recipe: Recipe, report: Callable[[int, float], None]
) -> None:
    """Stochastic gradient descent with momentum; the rate rises for a fifth of the steps and falls for the rest."""
    steps = len(x) // recipe.batch
    optimiser = torch.optim.SGD(
        net.parameters(), lr=recipe.peak_rate, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.peak_rate, total_steps=recipe.epochs * steps, pct_start=0.2
    )
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(x))
        total = 0.0
        for rows in order[: steps * recipe.batch].view(steps, recipe.batch):
            loss = nn.functional.cross_entropy(net(_augment(x[rows], recipe.shift)), y[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        report(epoch, total / steps)


def _augment(x: torch.Tensor, shift: int) -> torch.Tensor:
    """Mirror half of the images and move the batch by a few pixels; the border is background, so rolling is safe."""
    mirrored = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
    down, right = torch.randint(-shift, shift + 1, (2,)).tolist()
    return torch.roll(mirrored, (down, right), (2, 3))
