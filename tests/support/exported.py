"""Models written by other people's exporters: torch modules and the file inside magika."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import pytest


def torch_modules() -> dict[str, Any]:
    """A convolutional network, and vision transformers with each way of reading their tokens."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)

    class Tokens(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, read: str) -> None:
            super().__init__()
            self.read = read
            self.patches = nn.Conv2d(1, 16, 7, 7)
            self.first = nn.Parameter(torch.randn(1, 1, 16))
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(16)
            self.head = nn.Linear(16 * 17 if read == "all" else 16, 5)

        def forward(self, x: Any) -> Any:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.first.expand(tokens.shape[0], -1, -1), tokens], 1)
            tokens = self.norm(self.encoder(tokens))
            read = {"cls": lambda t: t[:, 0], "mean": lambda t: t.mean(1), "all": lambda t: t.flatten(1)}
            return self.head(read[self.read](tokens))

    cnn = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 5), nn.Softmax(1),
    )  # fmt: skip
    return {"cnn": cnn, "cls": Tokens("cls"), "mean": Tokens("mean"), "all": Tokens("all")}


def export_torch(module: Any, path: Path) -> None:
    """A module that takes [batch, 1, 28, 28], by torch's own exporter."""
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        batch = ({0: torch.export.Dim("batch")},)
        example = (torch.zeros(2, 1, 28, 28),)
        torch.onnx.export(module.eval(), example, path, dynamo=True, dynamic_shapes=batch, verbose=False)


def magika_path() -> Path:
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        pytest.skip("the package magika is not installed (pip install --no-deps magika)")
    return next((Path(spec.origin).parent / "models").rglob("model.onnx"))
