"""A session answers the same however the batch is cut, from any thread, and says what is wrong with an input."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small import dense_model

from models.errors import InputError, RuntimeFault
from models.runtime import RuntimeOptions, Session

X = np.random.default_rng(0).normal(size=(70, 8)).astype(np.float32)
WHOLE = Session(dense_model()).run(X, ["z"])[0]


@settings(max_examples=25, deadline=None)
@given(n=st.integers(0, 70), max_batch=st.integers(1, 80))
def test_chunks_give_what_one_run_gives(n: int, max_batch: int) -> None:
    session = Session(dense_model(), RuntimeOptions(max_batch=max_batch))
    got = session.run(X[:n], ["z"])[0]
    assert got.shape == (n, 5)
    np.testing.assert_allclose(got, WHOLE[:n], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 4, 7, 8, 9, 70])
def test_a_fixed_batch_is_padded_and_cut(n: int) -> None:
    session = Session(dense_model(batch=4), fixed_batch=4)
    got = session.run(X[:n], ["z"])[0]
    np.testing.assert_allclose(got, WHOLE[:n], rtol=1e-5, atol=1e-6)


def test_threads_share_one_session() -> None:
    session = Session(dense_model())
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: session.run(X[i : i + 1], ["z"])[0][0], range(len(X))))
    np.testing.assert_allclose(np.stack(answers), WHOLE, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (X[:, :3], ["[3, 3]", "8"]),
        (X.astype(np.float64), ["float64", "float"]),
        (X[0], ["[8]"]),
    ],
)
def test_a_wrong_input_is_named(x: np.ndarray, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        Session(dense_model()).run(x[:3] if x.ndim > 1 else x, ["z"])
    assert all(word in str(caught.value) for word in words)


def test_the_machine_without_a_gpu_runs_on_the_cpu_silently(capfd: pytest.CaptureFixture[str]) -> None:
    session = Session(dense_model(), RuntimeOptions(provider="auto"))
    session.run(X, ["z"])
    assert session.provider in ("CPUExecutionProvider", "CUDAExecutionProvider")
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_asking_for_cuda_where_there_is_none_is_refused() -> None:
    if Session(dense_model()).provider == "CUDAExecutionProvider":
        pytest.skip("CUDA works here")
    with pytest.raises(RuntimeFault, match="CUDA does not run here"):
        Session(dense_model(), RuntimeOptions(provider="cuda"))


def test_a_file_that_is_no_graph_is_refused() -> None:
    with pytest.raises(RuntimeFault, match="cannot load"):
        Session(b"no graph at all")


def test_two_inputs_are_refused() -> None:
    model = dense_model()
    extra = onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, ["batch", 1])
    model.graph.input.append(extra)
    with pytest.raises(RuntimeFault, match="mask"):
        Session(model)
