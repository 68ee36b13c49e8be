"""A torch module becomes an ONNX classifier that answers as the module does, or no file at all."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from models.classifier import Classifier
from models.errors import ClassifierError
from models.export import export_classifier

torch = pytest.importorskip("torch", reason="torch is an extra (pip install airlock-gate[train])")
nn = torch.nn

NAMES = ("red", "green", "blue")


def small_net() -> "torch.nn.Module":
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(6, 3),
    )  # fmt: skip


def batch(n: int = 4) -> "torch.Tensor":
    return torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(n))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_classifier(small_net(), batch(), tmp_path_factory.mktemp("net") / "net.onnx", class_names=NAMES)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_the_file_answers_as_the_module_for_any_batch_size(exported: Path, n: int) -> None:
    module = small_net().eval()
    classifier = Classifier.open(exported)
    with torch.no_grad():
        expected = module(batch(n)).numpy()
    np.testing.assert_allclose(classifier.signals(batch(n).numpy()).logits, expected, rtol=1e-4, atol=1e-6)


def test_the_file_opens_with_its_head_and_class_names(exported: Path) -> None:
    classifier = Classifier.open(exported)
    assert classifier.classes == NAMES
    assert classifier.head is not None
    np.testing.assert_array_equal(classifier.head.weight, small_net()[-1].weight.detach().double().numpy())
    assert classifier.fixed_batch is None


def test_the_file_tells_nothing_of_the_machine_it_was_made_on(exported: Path) -> None:
    model = onnx.load(exported)
    assert [entry.key for entry in model.metadata_props] == ["class_names"]
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)
    assert str(Path(__file__).parent).encode() not in exported.read_bytes()


def test_an_export_is_the_same_bytes_each_time_and_leaves_the_module_as_it_was(exported: Path, tmp_path: Path) -> None:
    module = small_net().train()
    module[1].eval()  # a frozen batch norm in a module that is being trained
    strided = torch.empty(4, 8, 8, 1).copy_(batch(4).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # another memory order
    again = export_classifier(module, strided, tmp_path / "again.onnx", class_names=NAMES)
    assert again.read_bytes() == exported.read_bytes()
    assert module.training
    assert not module[1].training


def test_a_fixed_batch_stays_fixed(tmp_path: Path) -> None:
    path = export_classifier(small_net(), batch(4), tmp_path / "fixed.onnx", dynamic_batch=False)
    shape = onnx.load(path).graph.input[0].type.tensor_type.shape
    assert [axis.dim_value for axis in shape.dim] == [4, 1, 8, 8]


class Rounded(nn.Module):
    """0.1 as a Python float in a float64 graph: torch's exporter rounds it to float32."""

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return torch.stack([x.sum(1) * 0.1, x.sum(1) * 0.3], 1)


class Maps(nn.Module):
    """One score a pixel, no class scores."""

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        return x * 2.0


class Branching(nn.Module):
    """A branch on a value, which no exporter can trace."""

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        pooled = x.mean((2, 3))
        return torch.cat([pooled, -pooled], 1) if float(x.sum()) > 0 else torch.cat([-pooled, pooled], 1)


@pytest.mark.parametrize(
    ("module", "example", "options", "message"),
    [
        (Rounded(), torch.ones(2, 5, dtype=torch.float64), {}, "rounded to float32"),
        (Maps(), batch(), {}, r"gave shape \[4, 1, 8, 8\]"),
        (Branching(), batch(), {}, "cannot export"),
        (small_net(), batch(), {"class_names": ("a", "b")}, "2 class names arrived for a module with 3"),
        (small_net(), batch(), {"opset": 17}, "opset=17"),
    ],
    ids=["rounded constant", "no class scores", "branch", "class names", "opset"],
)
def test_a_refused_export_says_why_in_one_line_and_leaves_the_old_file(
    tmp_path: Path, module: "torch.nn.Module", example: "torch.Tensor", options: dict[str, object], message: str
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"the old one")
    with pytest.raises(ClassifierError, match=message) as refusal:
        export_classifier(module, example, path, **options)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
    assert path.read_bytes() == b"the old one"
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.onnx"]


def test_importing_the_exporter_does_not_import_torch() -> None:
    code = "import sys, models.export; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
