"""Opening classifiers: what they take, what they give, their batch axis, their class names, and what is refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import zoo
from support.opening import dense, finding, refusal, rows, run_bare, softmax
from support.zoo import CLASSES, HIDDEN, WIDTH, Net

from models.classifier import Classifier
from models.errors import InputError

# inputs


def test_several_inputs_are_refused_by_name() -> None:
    net = Net(WIDTH)
    net.inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", HIDDEN]))
    model = net.model(net.head(net.add("Mul", net.hidden(), "mask")))
    message = refusal(model)
    assert "2 inputs ('x', 'mask')" in message
    assert "2 inputs" in refusal(model, input="x")
    assert "no input 'y'" in refusal(model, input="y")


def test_an_input_that_the_scores_do_not_need_is_dropped() -> None:
    net = Net(WIDTH)
    net.inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", 3]))
    used = net.head(net.hidden())
    other = net.add("ReduceMax", "mask", np.array([0, 1], np.int64), keepdims=0)
    classifier = Classifier.open(net.model(used, other), output=used)
    assert classifier.input_name == "x"
    assert [value.name for value in classifier.model.graph.input] == ["x"]


@pytest.mark.parametrize(
    ("kind", "shape", "words"),
    [
        (TensorProto.STRING, ["batch", WIDTH], "takes string values"),
        (TensorProto.FLOAT, [WIDTH], "has 1 axis"),
        (TensorProto.FLOAT, None, "no known shape"),
        (TensorProto.COMPLEX64, ["batch", WIDTH], "takes complex64 values"),
        (TensorProto.BOOL, ["batch", WIDTH], "takes bool values"),
    ],
)
def test_an_input_of_the_wrong_kind(kind: int, shape: list[object] | None, words: str) -> None:
    model = dense()
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", kind, shape))
    assert words in refusal(model)


def test_an_input_that_is_no_tensor() -> None:
    model = dense()
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, ["batch", WIDTH]))
    assert "is no tensor" in refusal(model)


def test_a_wrong_batch_is_refused_when_it_runs() -> None:
    classifier = Classifier.open(dense())
    with pytest.raises(InputError, match="takes float of shape"):
        classifier.signals(rows(4, WIDTH + 1))


def test_token_ids_stay_inside_the_vocabulary() -> None:
    classifier = Classifier.open(zoo.token_ids(vocabulary=5, length="length"))
    assert classifier.input_shape == (None,)
    assert classifier.input_dtype == np.int64
    assert classifier.head is not None
    assert "tried as" in finding(classifier, "leaves open")
    assert classifier.signals(np.zeros((3, 9), np.int64)).logits.shape == (3, CLASSES)


# outputs


def test_logits_beside_their_probabilities_need_no_choice() -> None:
    net = Net(WIDTH)
    z = net.head(net.hidden())
    classifier = Classifier.open(net.model(net.add("Softmax", z, axis=1), z))
    assert classifier.logits == z
    assert classifier.logits_kind == "logits"


def test_several_possible_outputs_ask_for_a_name() -> None:
    net = Net(WIDTH)
    h = net.hidden()
    z = net.head(h)
    model = net.model(z, h)
    message = refusal(model)
    assert f"'{z}' [24, {CLASSES}]" in message
    assert f"'{h}' [24, {HIDDEN}]" in message
    assert Classifier.open(model, output=z).n_classes == CLASSES
    assert "no output 'nothing'" in refusal(model, output="nothing")


def test_the_label_decides_between_outputs() -> None:
    net = Net(WIDTH)
    h = net.hidden()
    z = net.head(h)
    label = net.add("ArgMax", z, axis=1, keepdims=0)
    model = net.model(h, z)
    model.graph.output.append(helper.make_tensor_value_info(label, TensorProto.INT64, None))
    assert Classifier.open(model).logits == z


def test_a_label_that_is_not_the_largest_score_is_told() -> None:
    """As with a support vector machine, whose votes and fitted probabilities sometimes disagree."""
    net = Net(WIDTH)
    z = net.head(net.hidden())
    label = net.add("ArgMax", net.add("Mul", z, np.array([2, 1, 1, 1, 1], np.float32)), axis=1, keepdims=0)
    model = net.model(z)
    model.graph.output.append(helper.make_tensor_value_info(label, TensorProto.INT64, None))
    assert "of 24 random inputs" in finding(Classifier.open(model), "own label differs")


def test_scores_for_every_pixel_are_refused() -> None:
    net = Net(1, 9, 9)
    assert "[24, 8, 7, 7]" in refusal(net.model(net.feature_map()))


def test_a_model_that_gives_only_labels_is_refused() -> None:
    net = Net(WIDTH)
    model = net.model(net.add("ArgMax", net.head(net.hidden()), axis=1), kind=TensorProto.INT64)
    assert "none of them is a float tensor" in refusal(model)


def test_not_a_number_in_the_weights() -> None:
    net = Net(WIDTH)
    bias = np.full(CLASSES, np.nan, np.float32)
    model = net.model(net.add("Gemm", net.hidden(), net.random(HIDDEN, CLASSES), bias))
    assert "not finite on any random input" in refusal(model)


def test_two_classes_from_one_column_have_equal_rights() -> None:
    classifier = Classifier.open(zoo.binary_complement())
    assert classifier.head is not None
    np.testing.assert_array_equal(classifier.head.weight[0], -classifier.head.weight[1])
    assert classifier.n_classes == 2


def test_saturated_probabilities_do_not_hide_the_temperature() -> None:
    """Every row is sure of class 0 to the last bit; only tiny probabilities tell z from z/2."""
    net = Net(WIDTH)
    z = net.add("Gemm", net.hidden(), net.random(HIDDEN, 3, scale=0.001), np.array([80, 40, 38], np.float32))
    cooled = net.add("Div", z, np.float32(2))
    classifier = Classifier.open(net.model(net.add("Softmax", cooled, axis=1)))
    assert classifier.logits == cooled
    assert classifier.head is not None
    assert classifier.head.bias[0] == pytest.approx(40)


def test_log_probabilities_stay_finite_where_a_class_is_impossible() -> None:
    net = Net(WIDTH)
    gate = net.add("Cast", net.add("Greater", net.head(net.hidden()), np.float32(0)), to=TensorProto.FLOAT)
    some = net.add("Add", gate, np.array([1, 0, 0, 0, 0], np.float32))
    model = net.model(net.add("LpNormalization", some, axis=1, p=1))
    classifier = Classifier.open(model)
    x = rows(20, WIDTH)
    logits, p = classifier.signals(x).logits, run_bare(model, x)[0]
    assert (p == 0).any()
    assert np.isfinite(logits).all()
    assert classifier.logits_kind == "log_probabilities"
    np.testing.assert_allclose(softmax(logits), p, atol=1e-6)
    assert "energy" in finding(classifier, "log p stands for them")


# the batch axis


def test_a_fixed_batch_is_opened_where_that_is_proven() -> None:
    for model in (zoo.fixed_batch(), zoo.fixed_batch(width=-1), zoo.fixed_batch_class_token()):
        classifier = Classifier.open(model)
        assert classifier.fixed_batch is None
        assert classifier.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
        finding(classifier, "it is open now")


def test_a_batch_that_cannot_be_opened_is_kept() -> None:
    classifier = Classifier.open(zoo.stubborn_batch())
    assert classifier.fixed_batch == 3
    assert classifier.model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3
    finding(classifier, "chunks of 3")
    assert classifier.signals(rows(7, WIDTH)).logits.shape == (7, CLASSES)


@pytest.mark.parametrize("batch", [1, "batch"])
def test_answers_that_depend_on_the_batch_size_are_made_row_by_row(batch: int | str) -> None:
    net = Net(WIDTH, batch=batch)
    size = net.add("Cast", net.add("Shape", "x", start=0, end=1), to=TensorProto.FLOAT)
    model = net.model(net.add("Div", net.head(net.hidden()), size))
    classifier = Classifier.open(model)
    assert classifier.fixed_batch == 1
    x = rows(5, WIDTH)
    truth = np.concatenate([run_bare(model, x[i : i + 1])[0] for i in range(5)])
    np.testing.assert_allclose(classifier.signals(x).logits, truth, rtol=1e-4, atol=1e-5)


def test_rows_that_influence_each_other_are_run_alone() -> None:
    classifier = Classifier.open(zoo.influencing_rows())
    assert classifier.fixed_batch == 1
    x = rows(6, WIDTH)
    x[3] *= 1000
    np.testing.assert_array_equal(classifier.signals(x).logits[:3], classifier.signals(x[:3]).logits)


def test_rows_that_influence_each_other_in_a_fixed_batch_are_refused() -> None:
    model = zoo.influencing_rows()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    model.graph.node.insert(0, helper.make_node("Reshape", ["x", "same"], ["fixed"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([4, WIDTH], np.int64), "same"))
    model.graph.node[1].input[0] = "fixed"
    assert "depends on the other rows" in refusal(model)


def test_a_model_with_chance_in_it_is_refused() -> None:
    assert "different answers to the same input" in refusal(zoo.random_noise())


# class names


@pytest.mark.parametrize(
    "text",
    [
        '["a", "b", "c", "d", "e"]',
        "{0: 'a', 1: 'b', 2: 'c', 3: 'd', 4: 'e'}",
        '{"4": "e", "1": "b", "2": "c", "3": "d", "0": "a"}',
        "a, b, c, d, e",
        "a\nb\nc\nd\ne\n",
    ],
)
def test_class_names_from_the_metadata(text: str) -> None:
    model = dense()
    helper.set_model_props(model, {"names": text})
    assert Classifier.open(model).classes == ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("text", ['["a", "b"]', '["a", "a", "a", "a", "a"]', '{"x": "a"}', "17"])
def test_names_that_do_not_fit_are_not_used(text: str) -> None:
    model = dense()
    helper.set_model_props(model, {"classes": text})
    assert Classifier.open(model).classes is None
