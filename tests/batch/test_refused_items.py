"""Items on which the graph itself fails are rows like other bad items; a model that fails on all ends the job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.build import Recipe, build
from models.bundle import Bundle
from models.errors import RuntimeFault
from models.runtime import Scored, Scorer
from service.batch import Job, Wishes, run

VOCABULARY, WIDTH, CLASSES = 50, 12, 4
ReadRows = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Token numbers [batch, length] → mean of their vectors → linear layer; a number beyond the vocabulary fails."""
    folder = tmp_path_factory.mktemp("words")
    rng = np.random.default_rng(0)
    weights = {"vectors": rng.normal(size=(VOCABULARY, WIDTH)), "w": rng.normal(size=(WIDTH, CLASSES))}
    nodes = [
        helper.make_node("Gather", ["vectors", "x"], ["e"]),
        helper.make_node("ReduceMean", ["e", "axis"], ["h"], keepdims=0),
        helper.make_node("MatMul", ["h", "w"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["n", "length"])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", CLASSES])],
        [
            numpy_helper.from_array(np.array([1], np.int64), "axis"),
            *(numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()),
        ],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "words.onnx")
    return build(folder / "words.onnx", None, folder / "bundle", Recipe(s_ood="energy"))


def _texts(bad: dict[int, list[int]], n: int = 60) -> list[list[int]]:
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, VOCABULARY, 3 + i % 2).tolist() for i in range(n)]
    return [bad.get(i, text) for i, text in enumerate(texts)]


def _job(bundle: Bundle, texts: list[list[int]], folder: Path, name: str) -> Job:
    pq.write_table(pa.table({"x": pa.array(texts, pa.list_(pa.int64()))}), folder / f"{name}.parquet")
    wishes = Wishes(batch=16, part_rows=32, workers=2)
    return Job(bundle.path, str(folder / f"{name}.parquet"), folder / name, no_policy=True, quiet=True, wishes=wishes)


def test_items_that_the_graph_refuses_become_rows(words: Bundle, tmp_path: Path, rows: ReadRows) -> None:
    bad = {0: [VOCABULARY], 5: [1, 2, 999], 6: [999, 1, 2, 3], 59: [-999]}
    outcome = run(_job(words, _texts(bad), tmp_path, "bad"))
    assert outcome.complete
    found = rows(tmp_path / "bad")
    assert {int(row["id"]) for row in found if row["reason"] == "unreadable"} == set(bad)
    assert "out of data bounds, idx=999" in found[5]["error"]
    run(_job(words, _texts({}), tmp_path, "good"))
    for one, other in zip(found, rows(tmp_path / "good"), strict=True):
        if int(one["id"]) not in bad:
            assert one["prediction"] == other["prediction"]
            assert one["s_id"] == pytest.approx(other["s_id"], rel=1e-5)


def test_a_probe_on_nothing_but_bad_items_still_finds_a_batch_size(words: Bundle, tmp_path: Path) -> None:
    job = _job(words, [[VOCABULARY + i] for i in range(40)], tmp_path, "bad")
    outcome = run(Job(job.bundle, job.data, job.out, no_policy=True, quiet=True))
    assert outcome.summary["counts"]["reasons"]["unreadable"] == 40


def test_a_model_that_answers_nothing_any_more_ends_the_job(
    words: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, calls = Scorer.score, 0

    def failing(self: Scorer, x: np.ndarray, **options: Any) -> Scored:
        nonlocal calls
        calls += 1
        if calls > 20:
            raise RuntimeFault("the device is gone")
        return score(self, x, **options)

    monkeypatch.setattr(Scorer, "score", failing)
    with pytest.raises(RuntimeFault, match="the device is gone"):
        run(_job(words, _texts({}, 2000), tmp_path, "gone"))
