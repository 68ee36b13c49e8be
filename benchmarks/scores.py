"""What scores cost: k nearest neighbours beside faiss, cheap scores beside a ResNet-18, a pair beside a tiny MLP.

    python benchmarks/scores.py

Everything runs on one thread, alternating within one run, so that the ratios hold whatever else the machine does.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import time
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.classifier import Classifier
from models.fuse import fuse
from models.runtime import RuntimeOptions, Session
from models.scores import FitData, fit_score, registry
from models.scores.alone import GraphScore
from models.signals import Head, Signals

ONE_THREAD = RuntimeOptions(provider="cpu", threads=1)
LOGIT_FAMILY = [id for id, score in registry().items() if score.needs <= {"logits", "fit"}]
CHEAP = [*LOGIT_FAMILY, "react", "vim", "fdbd", "gradnorm"]


def alternate(tasks: dict[str, Callable[[], object]], rounds: int, repeat: int = 1) -> dict[str, float]:
    """Fastest seconds of each task; every round runs all of them."""
    best = dict.fromkeys(tasks, float("inf"))
    for task in tasks.values():
        task()
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            for _ in range(repeat):
                task()
            best[name] = min(best[name], (time.perf_counter() - start) / repeat)
    return best


def signals(rows: int, classes: int, dim: int, seed: int = 0) -> tuple[Signals, np.ndarray, Head]:
    """Made-up features behind a ReLU and their logits."""
    rng = np.random.default_rng(seed)
    head = Head(rng.normal(size=(classes, dim)) / np.sqrt(dim), rng.normal(size=classes), "gemm")
    features = np.maximum(rng.normal(size=(rows, dim)), 0).astype(np.float32)
    logits = (features @ head.weight.T + head.bias).astype(np.float32)
    return Signals(logits, features), rng.integers(classes, size=rows), head


def knn_beside_faiss() -> None:
    import faiss

    faiss.omp_set_num_threads(1)
    fit, _, _ = signals(10_000, 10, 512)
    queries, _, _ = signals(128, 10, 512, seed=1)
    fitted = fit_score("knn:k=50", None, FitData(fit.logits, fit.features))
    graph = GraphScore(fitted, ONE_THREAD)
    index = faiss.IndexFlatL2(512)
    index.add((fitted.theta["bank"] + fitted.theta["centre"]).astype(np.float32))
    unit = queries.features / np.linalg.norm(queries.features, axis=1, keepdims=True)
    print("k = 50 nearest of 10,000 x 512, one thread")
    print(f"{'batch':>6} {'in-graph ms':>12} {'faiss ms':>10} {'ratio':>7}")
    for batch in (32, 128):
        columns = graph.columns(Signals(queries.logits[:batch], queries.features[:batch]))
        rows = np.ascontiguousarray(unit[:batch], dtype=np.float32)
        best = alternate({"graph": lambda c=columns: graph.run(c), "faiss": lambda r=rows: index.search(r, 50)}, 25)
        print(f"{batch:6} {best['graph'] * 1e3:12.2f} {best['faiss'] * 1e3:10.2f} {best['faiss'] / best['graph']:7.2f}")
    theirs = -np.sqrt(index.search(np.ascontiguousarray(unit, dtype=np.float32), 50)[0][:, -1])
    print(f"largest relative difference of the distances: {np.max(np.abs(graph.compute(queries) / theirs - 1)):.1e}\n")


def resnet18(classes: int = 100) -> onnx.ModelProto:
    """ResNet-18 for 32 x 32 images, 11 M random weights, batch normalisation folded into the convolutions."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def conv(x: str, into: int, out: int, size: int, stride: int, relu: bool = True) -> str:
        name = f"conv{len(nodes)}"
        kernel = rng.normal(size=(out, into, size, size)) * np.sqrt(2 / (into * size * size))
        weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"{name}_w"))
        weights.append(numpy_helper.from_array(np.zeros(out, np.float32), f"{name}_b"))
        pads = [size // 2] * 4
        inputs = [x, f"{name}_w", f"{name}_b"]
        nodes.append(helper.make_node("Conv", inputs, [name], pads=pads, strides=[stride, stride]))
        if not relu:
            return name
        nodes.append(helper.make_node("Relu", [name], [f"{name}_r"]))
        return f"{name}_r"

    x, width = conv("x", 3, 64, 3, 1), 64
    for stage, out in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            branch = conv(conv(x, width, out, 3, stride), out, out, 3, 1, relu=False)
            skip = x if width == out else conv(x, width, out, 1, stride, relu=False)
            nodes.append(helper.make_node("Add", [branch, skip], [f"{branch}_sum"]))
            nodes.append(helper.make_node("Relu", [f"{branch}_sum"], [f"{branch}_out"]))
            x, width = f"{branch}_out", out
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    weights.append(numpy_helper.from_array(rng.normal(size=(classes, 512)).astype(np.float32) / 8, "head_w"))
    weights.append(numpy_helper.from_array(np.zeros(classes, np.float32), "head_b"))
    nodes.append(helper.make_node("Gemm", ["features", "head_w", "head_b"], ["logits"], transB=1))
    return _model(nodes, weights, [3, 32, 32], classes)


def tiny_mlp(inputs: int = 64, hidden: int = 64, classes: int = 10) -> onnx.ModelProto:
    """Two hidden layers, 9 k weights."""
    rng = np.random.default_rng(0)
    nodes, weights, x, width = [], [], "x", inputs
    for i, out in enumerate((hidden, hidden, classes)):
        weights.append(numpy_helper.from_array(rng.normal(size=(out, width)).astype(np.float32) / 8, f"w{i}"))
        weights.append(numpy_helper.from_array(np.zeros(out, np.float32), f"b{i}"))
        last = out == classes
        nodes.append(helper.make_node("Gemm", [x, f"w{i}", f"b{i}"], ["logits" if last else f"a{i}"], transB=1))
        if not last:
            nodes.append(helper.make_node("Relu", [f"a{i}"], [f"r{i}"]))
        x, width = f"r{i}", out
    return _model(nodes, weights, [inputs], classes)


def _model(nodes: list, weights: list, shape: list[int], classes: int) -> onnx.ModelProto:
    entry = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])
    graph = helper.make_graph(nodes, "classifier", [entry], [logits], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def cheap_scores_beside_resnet() -> None:
    rows, labels, head = signals(2000, 100, 512)
    data = FitData.of(rows, labels, head)
    batch = Signals(rows.logits[:32], rows.features[:32])
    session = Session(resnet18(), ONE_THREAD)
    images = np.random.default_rng(0).normal(size=(32, 3, 32, 32)).astype(np.float32)
    tasks: dict[str, Callable[[], object]] = {}
    for id in CHEAP:
        graph = GraphScore(fit_score(id, None, data), ONE_THREAD)
        columns = graph.columns(batch)
        tasks[id] = lambda g=graph, c=columns: g.run(c)
    best = alternate({"resnet18": lambda: session.run(images, ["logits"]), **tasks}, 12)
    whole = best.pop("resnet18")
    print(f"batch 32, 100 classes, 512 features, one thread: ResNet-18 (32 x 32 images) {whole * 1e3:.0f} ms")
    print(f"{'score':>12} {'us a batch':>11} {'added':>8}")
    for id, seconds in best.items():
        print(f"{id:>12} {seconds * 1e6:11.0f} {seconds / whole:8.2%}")
    print(f"most: {max(best.values()) / whole:.2%}\n")


def pair_beside_tiny_mlp() -> None:
    classifier = Classifier.open(tiny_mlp())
    x = np.random.default_rng(0).normal(size=(500, 64)).astype(np.float32)
    found = classifier.signals(x)
    data = FitData.of(found, found.logits.argmax(axis=1), classifier.head)
    pairs = [("msp", "energy"), ("msp", "max_logit"), ("msp", "vim"), ("gen", "mahalanobis")]
    sessions = {"plain": (Session(tiny_mlp(), ONE_THREAD), ["logits"])}
    for pair in pairs:
        fused = fuse(classifier, *(fit_score(id, None, data) for id in pair)).model
        sessions[" + ".join(pair)] = (Session(fused, ONE_THREAD), ["label", "s_id", "s_ood", "finite"])
    tasks = {name: lambda s=s, outputs=outputs: s.run(x[:1], outputs) for name, (s, outputs) in sessions.items()}
    best = alternate(tasks, 60, repeat=200)
    plain = best.pop("plain")
    print(f"batch 1, one thread: MLP of 9 k weights {plain * 1e6:.1f} us; fused adds label, both scores, finite:")
    for name, seconds in best.items():
        print(f"{name:>20} {(seconds - plain) * 1e6:+7.1f} us")


if __name__ == "__main__":
    knn_beside_faiss()
    cheap_scores_beside_resnet()
    pair_beside_tiny_mlp()
