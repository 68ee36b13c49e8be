"""Score tables: what they accept, what they refuse in which words, and files."""

import math
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from calibration.errors import TableError
from calibration.table import ScoreTable

BASE = {
    "s_id": [0.9, 0.2, 0.5],
    "s_ood": [3.0, 1.0, 2.0],
    "is_id": [True, False, True],
    "correct": [True, False, False],
}


def _with(**columns):
    return {name: value for name, value in (BASE | columns).items() if value is not None}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"s_ood": ["3", "high", "2"]}, "Column 's_ood', row 2: 'high' is no number."),
        ({"s_id": [True, False, True]}, "Column 's_id', row 1: True is no number."),
        ({"s_id": [[1], [2], [3]]}, "Column 's_id' has 2 dimensions; it takes one value a row."),
        ({"is_id": [1, 0, 2]}, "Column 'is_id', row 3: 2 stands where true or false is needed"),
        ({"is_id": ["true", "perhaps", "no"]}, "Column 'is_id', row 2: 'perhaps' stands where true or false"),
        ({"is_id": [True, None, True]}, "Column 'is_id', row 2: nothing stands where true or false"),
        ({"correct": [True, None, None]}, "Column 'correct', row 3: nothing stands where true or false"),
        ({"correct": [1.0, math.nan, math.nan]}, "Column 'correct', row 3: nothing stands where true or false"),
        ({"weight": [1, 2, -0.5]}, "Column 'weight', row 3: -0.5 is no weight; give a finite number >= 0."),
        ({"weight": [1, math.nan, 1]}, "Column 'weight', row 2: nan is no weight"),
        ({"s_id": None}, "Column 's_id' is missing; a score table needs s_id, s_ood, is_id"),
        ({"correct": None}, "Column 'correct' is missing; give it, or both 'prediction' and 'label'"),
        ({"correct": None, "label": [1, 2, 3]}, "Column 'correct' is missing"),
        ({"group": ["a"]}, "Column 'group' has 1 rows where 's_id' has 3; give one value a row."),
        ({"group": "near"}, "Column 'group' is 'near'; give one value a row."),
        ({"scores": [1, 2, 3]}, "Unknown column 'scores'; a score table takes s_id, s_ood, is_id, correct"),
        ({"label": [0.5, 1, 2]}, "Column 'label', row 1: 0.5 is no class"),
        (
            {"prediction": [1, 1, 1], "label": [1, -1, 1]},
            "Column 'correct', row 3: False contradicts prediction 1 and label 1",
        ),
        (
            {"prediction": ["cat", "cat", "dog"], "label": [1, 1, 1]},
            "Column 'prediction' holds names and 'label' holds whole numbers; use the same for both.",
        ),
        ({"probabilities": [0.1, 0.2, 0.7]}, r"Column 'probabilities' has the shape (3,)"),
        (
            {"probabilities": [[0.5, 0.5], [1.5, -0.5], [1, 0]]},
            "Column 'probabilities', row 2: 1.5 (class 0) is no prob",
        ),
        ({"probabilities": [[0.5, 0.5], [1, 0], [0.2, 0.2]]}, "row 3: the entries add up to 0.4 instead of 1."),
    ],
)
def test_refusals_name_column_row_and_value(columns, message):
    with pytest.raises(TableError) as refusal:
        ScoreTable.from_columns(**_with(**columns))
    assert message in str(refusal.value)


def test_words_and_numbers_are_read_as_truth():
    table = ScoreTable.from_columns(**_with(is_id=["Yes", "f", 1], correct=[1, "", "0"]))
    assert table.is_id.tolist() == [True, False, True]
    assert table.correct.tolist() == [True, False, False]


def test_correct_follows_from_prediction_and_label():
    table = ScoreTable.from_columns(**_with(correct=None, prediction=[4, 4, 2], label=[4, 4, 7]))
    assert table.correct.tolist() == [True, False, False]  # the second row is OOD
    named = ScoreTable.from_columns(**_with(correct=None, prediction=["cat", "cat", "dog"], label=["cat", None, "cat"]))
    assert named.correct.tolist() == [True, False, False]
    assert named.label.tolist() == ["cat", "", "cat"]


def test_ood_rows_are_never_correct():
    assert not ScoreTable.from_columns(**_with(correct=[True, True, True])).correct[1]


def test_scores_that_are_not_finite_are_kept_and_counted():
    table = ScoreTable.from_columns(**_with(s_id=[None, math.inf, 0.5]))
    assert (table.n_id, table.n_ood, table.n_not_finite) == (2, 1, 2)
    assert table.finite.tolist() == [False, False, True]


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
numbers = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def full_tables(draw):
    n = draw(st.integers(0, 6))

    def column(values):
        return draw(st.lists(values, min_size=n, max_size=n))

    labels = draw(st.sampled_from([st.integers(-1, 3), st.sampled_from(["cat", "dog", 'a,b"c'])]))
    probabilities = np.array(column(st.sampled_from([[0.25, 0.75], [1.0, 0.0], [1 / 3, 2 / 3]])), dtype=float)
    return ScoreTable.from_columns(
        s_id=np.array(column(numbers), dtype=float),
        s_ood=np.array(column(numbers), dtype=float),
        is_id=np.array(column(st.booleans()), dtype=bool),
        prediction=np.array(column(labels)) if n else np.empty(0, dtype=np.int64),
        label=np.array(column(labels)) if n else np.empty(0, dtype=np.int64),
        group=column(texts),
        id=column(texts),
        weight=np.array(column(st.floats(0, 1e6)), dtype=float),
        probabilities=probabilities if n else None,
    )


@given(table=full_tables(), suffix=st.sampled_from(["csv", "parquet"]))
@settings(max_examples=60, deadline=None)
def test_files_give_back_every_bit(table, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / f"scores.{suffix}"
    table.write(path)
    again = ScoreTable.read(path)
    assert again.columns().keys() == table.columns().keys()
    for name, column in table.columns().items():
        if len(table) or name not in ("prediction", "label"):
            np.testing.assert_array_equal(getattr(again, name), column)
    assert again.fingerprint() == table.fingerprint() or not len(table)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_columns_of_other_programs_are_left_out_and_p_columns_gathered(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(
        "id,note,s_ood,s_id,is_id,correct,p_1,p_0\n007,hello,1.5,,True,yes,0.75,0.25\n008,,nan,0.5,0,,0.5,0.5\n"
    )
    table = ScoreTable.read(path)
    assert table.id.tolist() == ["007", "008"]
    assert table.probabilities.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert table.n_not_finite == 2
    assert table.correct.tolist() == [True, False]


def test_parquet_of_other_types_is_read(tmp_path):
    path = tmp_path / "scores.parquet"
    columns = {
        "s_id": pa.array([1, 2], pa.int32()),
        "s_ood": pa.array([0.5, None], pa.float32()),
        "is_id": pa.array([1, 0], pa.uint8()),
        "correct": pa.array([True, None]),
        "group": pa.array(["a", "b"]).dictionary_encode(),
        "label": pa.array([3, None], pa.int16()),
        "probabilities": pa.array([[0.5, 0.5], [0.0, 1.0]]),
        "extra": pa.array([object.__name__, "x"]),
    }
    parquet.write_table(pa.table(columns), path)
    table = ScoreTable.read(path)
    assert table.label.tolist() == [3, -1]
    assert table.group.tolist() == ["a", "b"]
    assert table.s_ood[0] == 0.5
    assert table.n_not_finite == 1
    assert table.probabilities.shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("scores.csv", "s_id,s_ood,is_id,correct\n1,2,1,1\n1,x,1,1\n", "scores.csv: Column 's_ood', row 2: 'x' is no"),
        ("scores.csv", "s_id,s_ood,is_id,correct\n1,2,1\n", "scores.csv cannot be read as CSV"),
        ("scores.csv", "", "scores.csv cannot be read as CSV"),
        ("scores.csv", "s_id,s_id,s_ood,is_id,correct\n1,2,3,1,1\n", "column 's_id' occurs 2 times; keep one."),
        ("scores.csv", "s_id,s_ood,is_id,correct,p_0,p_2\n1,2,1,1,0,1\n", "column 'p_1' is missing"),
        ("scores.csv", "a,b\n1,2\n", "scores.csv: column 's_id' is missing; a score table needs"),
        ("scores.csv", "s_id,s_odd,is_id\n1,2,1\n", "and this file has s_id, s_odd, is_id."),
        ("scores.parquet", "no parquet", "scores.parquet cannot be read as Parquet"),
        ("scores.txt", "s_id\n1\n", "ends in '.txt'; a score table is a .csv or .parquet file."),
    ],
)
def test_refusals_of_files_name_the_file(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(TableError) as refusal:
        ScoreTable.read(path)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(TableError, match=r"no score table at .*none\.csv"):
        ScoreTable.read(tmp_path / "none.csv")
    with pytest.raises(TableError, match=r"The folder .*none does not exist"):
        ScoreTable.from_columns(**BASE).write(tmp_path / "none" / "scores.csv")


def test_ragged_probabilities_are_refused(tmp_path):
    columns = {name: pa.array(value) for name, value in BASE.items()}
    columns["probabilities"] = pa.array([[0.5, 0.5], [1.0], [0.5, 0.5]])
    parquet.write_table(pa.table(columns), tmp_path / "scores.parquet")
    with pytest.raises(TableError, match="row 2: 1 values where row 1 has 2"):
        ScoreTable.read(tmp_path / "scores.parquet")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "scores.csv"
    table = ScoreTable.from_columns(**BASE)
    table.write(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        table.take([0]).write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_fingerprints_tell_contents_apart():
    table = ScoreTable.from_columns(**BASE, group=["a", "b", "c"])
    same = ScoreTable.from_columns(**dict(reversed(list(BASE.items()))), group=["a", "b", "c"])
    assert table.fingerprint() == same.fingerprint()
    others = [
        table.take([0, 1]),
        table.take([1, 0, 2]),
        ScoreTable.from_columns(**BASE),
        ScoreTable.from_columns(**BASE, group=["ab", "", "c"]),
        ScoreTable.from_columns(**_with(s_id=[0.9, 0.2, np.nextafter(0.5, 1)]), group=["a", "b", "c"]),
    ]
    assert len({table.fingerprint(), *(other.fingerprint() for other in others)}) == 6


def test_rows_can_be_taken_and_joined():
    table = ScoreTable.from_columns(**BASE, group=["a", "b", "c"])
    parts = [table.take(table.is_id), table.take(~table.is_id), table.take([])]
    joined = ScoreTable.concat(parts)
    assert joined.group.tolist() == ["a", "c", "b"]
    assert len(table.take(slice(1, 3))) == 2
    weighted = ScoreTable.concat([table, table.reweighted(np.array([2.0, 3.0, 4.0]))])
    assert weighted.weights.tolist() == [1, 1, 1, 2, 3, 4]
    with pytest.raises(TableError, match="at least one"):
        ScoreTable.concat([])


@given(data=st.data(), pi=st.floats(0.01, 0.99))
@settings(max_examples=60, deadline=None)
def test_prevalence_is_the_share_of_ood(data, pi, tables):
    table = data.draw(tables(weights="whole"))
    of_id, of_ood = table.weights[table.is_id].sum(), table.weights[~table.is_id].sum()
    if of_id == 0 or of_ood == 0:
        with pytest.raises(TableError, match="row with weight"):
            table.with_prevalence(pi)
        return
    weighted = table.with_prevalence(pi)
    assert weighted.weights.sum() == pytest.approx(table.weights.sum())
    assert weighted.weights[~table.is_id].sum() / weighted.weights.sum() == pytest.approx(pi)
    assert table.with_prevalence(0.0).weights[~table.is_id].sum() == 0.0


def test_an_impossible_prevalence_is_refused():
    table = ScoreTable.from_columns(**BASE)
    for pi in (-0.1, 1.0, math.nan):
        with pytest.raises(TableError, match="at least 0 and below 1"):
            table.with_prevalence(pi)


def test_a_folder_of_parts_is_one_table(tmp_path: Path) -> None:
    table = ScoreTable.from_columns(
        s_id=[3, 2, 1], s_ood=[1, 3, 2], is_id=[1, 0, 1], correct=[1, 0, 0], id=["a", "b", "c"]
    )
    table.take([0]).write(tmp_path / "part-00000.parquet")
    table.take([1, 2]).write(tmp_path / "part-00001.parquet")
    (tmp_path / "manifest.json").write_text("{}")
    assert ScoreTable.read(tmp_path).fingerprint() == table.fingerprint()
    (tmp_path / "empty").mkdir()
    with pytest.raises(TableError, match="holds no"):
        ScoreTable.read(tmp_path / "empty")
