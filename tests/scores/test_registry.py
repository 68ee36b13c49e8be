"""Names, parameters, refusals and scores of other packages."""

from importlib.metadata import EntryPoint

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ScoreError
from models.scores import FitData, Score, ScoreSpec, WrapperSpec, fit_score, get_score, parse_spec, possible_scores
from models.scores import registry as registry_of
from models.scores.base import require
from models.scores.checks import CHECKS, case
from models.scores.describe import describe_scores, describe_wrappers
from models.signals import Head, Signals

LOGIT_ONLY = [
    "msp",
    "margin",
    "max_logit",
    "energy",
    "entropy",
    "collision",
    "gini",
    "renyi",
    "guessing",
    "gen",
    "pnorm",
]
IDS = [
    *LOGIT_ONLY,
    *["klm", "openmax", "react", "dice", "ash", "scale", "gradnorm", "mahalanobis", "relative_mahalanobis", "knn"],
    *["nnguide", "vim", "residual", "fdbd", "ctm", "ctm_mean", "neco", "pca", "kpca", "pnml", "sirc", "plugin_bb"],
]

names = st.from_regex(r"[a-z][a-z_0-9]{0,8}", fullmatch=True)
values = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    names.filter(lambda word: word not in ("true", "false", "none", "nan", "inf", "infinity")),
)
settings = st.dictionaries(names, values, max_size=3)


def test_the_catalogue_is_complete():
    assert [id for id in IDS if id not in registry_of()] == []


@given(names, settings, st.lists(st.tuples(names, settings), max_size=2))
def test_a_spec_reads_back_what_it_writes(id, params, wrappers):
    spec = ScoreSpec(id=id, params=params, wrappers=tuple(WrapperSpec(id=w, params=p) for w, p in wrappers))
    assert parse_spec(str(spec)) == spec


def test_the_notation():
    spec = parse_spec("knn:k=50,bank=1e+3+project=class_pred:variance=0.9+temperature")
    assert spec.id == "knn"
    assert spec.params == {"k": 50, "bank": 1000.0}
    assert spec.wrappers[0] == WrapperSpec(id="project", params={"mode": "class_pred", "variance": 0.9})
    assert spec.wrappers[1] == WrapperSpec(id="temperature")


@pytest.mark.parametrize("text", ["", "5", "vim:dim", "vim:=3", "+temperature", "vim dim=3"])
def test_a_malformed_spec_shows_how_to_write_one(text):
    with pytest.raises(ScoreError, match="write"):
        parse_spec(text)


def test_an_unknown_score_names_the_close_one_and_all():
    with pytest.raises(ScoreError, match="did you mean mahalanobis") as refusal:
        get_score("mahalonobis")
    assert all(id in str(refusal.value) for id in IDS)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vim:dims=3", "vim has no parameter 'dims': its parameters are dim"),
        ("msp:k=3", "msp has no parameter 'k': its parameters are none"),
        ("knn:k=0", "knn's parameter k should be greater than or equal to 1, got 0"),
        ("energy:T=hot", "energy's parameter T should be a valid number.*got 'hot'"),
        ("gen:gamma=1.5", "gen's parameter gamma should be less than 1, got 1.5"),
        ("ash:variant=x", "ash's parameter variant should be 's', 'p' or 'b', got 'x'"),
        ("mahalanobis:shrinkage=2", "mahalanobis's parameter shrinkage .* less than or equal to 1 or should be 'oas'"),
        ("plugin_bb:c_in=0.6,c_out=0.5", "plugin_bb: c_in [+] c_out must be below 1, got 1.1"),
        ("knn:k=999", "knn's parameter k must be at most 240, the fit rows in its bank, got 999"),
        ("vim:dim=20", "dim must be from 1 to 19 for 20 features, got 20"),
        ("neco:dim=21", "dim must be at most 20"),
        ("pca:dim=21", "dim must be from 1 to 20"),
        ("energy+temperature=-1", "temperature's parameter T should be greater than 0, got -1"),
    ],
)
def test_wrong_parameters_say_which_what_is_allowed_and_what_arrived(spec, message):
    with pytest.raises(ScoreError, match=message):
        case().fitted(spec)


def test_what_a_classifier_without_a_head_can_still_use():
    remaining = possible_scores(has_features=False, has_head=False)
    assert remaining == [*LOGIT_ONLY, "klm"]
    assert set(possible_scores(has_features=True, has_head=True)) == set(registry_of())
    assert "mahalanobis" not in possible_scores(has_features=True, has_head=True, has_labels=False)
    with pytest.raises(ScoreError, match=r"knn needs penultimate features.*possible scores: msp, margin") as refusal:
        fit_score("knn", None, FitData(case().fit.logits))
    assert "vim" not in str(refusal.value)
    with pytest.raises(ScoreError, match="vim needs the classifier's linear head"):
        fit_score("vim", None, FitData.of(case().fit))
    with pytest.raises(ScoreError, match="mahalanobis needs labels of the fit data"):
        fit_score("mahalanobis", None, FitData.of(case().fit))


def test_fit_data_that_does_not_fit_together():
    made = case()
    with pytest.raises(ScoreError, match="labels has 3 rows where logits has 240"):
        FitData.of(made.fit, np.arange(3))
    with pytest.raises(ScoreError, match="at least two classes"):
        FitData(np.zeros((5, 1)))
    with pytest.raises(ScoreError, match=r"weight is \[6, 7\]"):
        FitData.of(made.fit, made.labels, Head(np.zeros((6, 7)), np.zeros(6), "gemm"))
    with pytest.raises(ScoreError, match="empty"):
        FitData.stream(list)
    with pytest.raises(ScoreError, match="at least one finite row"):
        fit_score("klm", None, FitData(np.full((4, 3), np.nan)))
    with pytest.raises(ScoreError, match="do not vary"):
        fit_score("mahalanobis", None, FitData(np.eye(4), np.ones((4, 3)), np.arange(4)))


def test_rows_that_are_not_finite_are_left_out_and_noted():
    made = case()
    features = np.array(made.fit.features)
    features[7, 3] = np.nan
    fitted = fit_score("knn:k=3", None, FitData(made.fit.logits, features, made.labels, made.head))
    assert len(fitted.theta["bank"]) == 239
    assert fitted.notes == ("1 rows of the fit data were left out because of non-finite signals.",)


def test_a_sample_of_a_stream_is_uniform_seeded_and_bounded():
    logits = np.stack([np.arange(5000.0), np.zeros(5000)], axis=1)
    data = FitData(logits)
    drawn = data.sample(500, seed=1).logits[:, 0]
    assert len(np.unique(drawn)) == 500
    assert (np.diff(drawn) > 0).all(), "rows keep their order"
    np.testing.assert_array_equal(drawn, FitData(logits).sample(500, seed=1).logits[:, 0])
    counts = np.histogram(drawn, bins=5, range=(0, 5000))[0]
    assert (np.abs(counts - 100) < 40).all(), "late rows are drawn as often as early ones"


class Distance(Score):
    """−‖h − μ‖, as another package might write it."""

    id = "distance"
    title = "distance to the mean"
    paper = "nobody, never"
    needs = require("features", "fit")
    cost = "low"

    def fit(self, data, params):
        from models.scores import Theta
        from models.scores.moments import feature_moments

        return Theta({"mean": feature_moments(data).mean})

    def formula(self, xp, x, theta, params):
        return -xp.norm(x.h - theta["mean"])


@pytest.fixture
def third_party(monkeypatch):
    """The registry as it is with a package installed that adds a score."""

    def install(*entries):
        points = [EntryPoint(name, value, "airlock.scores") for name, value in entries]
        monkeypatch.setattr("models.scores.catalogue.entry_points", lambda group: points)
        registry_of.cache_clear()

    monkeypatch.setitem(__import__("sys").modules, "their_package", type("M", (), {"Distance": Distance, "no": 3}))
    yield install
    registry_of.cache_clear()


def test_a_package_adds_a_score_that_gets_the_contract(third_party):
    third_party(("distance", "their_package:Distance"))
    assert list(registry_of())[-1] == "distance"
    for check in CHECKS:
        check("distance")


def test_what_is_no_score_or_taken_is_refused(third_party):
    third_party(("distance", "their_package:no"))
    with pytest.raises(ScoreError, match="is not a Score class"):
        registry_of()
    third_party(("a", "their_package:Distance"), ("b", "their_package:Distance"))
    with pytest.raises(ScoreError, match="Two scores are called 'distance'"):
        registry_of()


def test_a_wrong_formula_does_not_pass_the_contract(third_party, monkeypatch):
    """A score of the row's rank in its batch: finite and plausible, and caught."""

    def against_the_batch(self, xp, x, theta, params):
        distance = xp.norm(x.h - theta["mean"])
        return distance - (np.mean(distance) if isinstance(distance, np.ndarray) else 0.0)

    monkeypatch.setattr(Distance, "formula", against_the_batch)
    third_party(("distance", "their_package:Distance"))
    caught = []
    for check in CHECKS:
        try:
            check("distance")
        except AssertionError:
            caught.append(check.__name__)
    assert {"check_graph_equals_definition", "check_batch_equals_single"} <= set(caught)


def test_descriptions_are_complete():
    for entry in (*describe_scores(), *describe_wrappers()):
        assert entry["title"]
        assert entry["paper"]
        assert entry["needs"]
        for parameter in entry["parameters"]:
            assert parameter["meaning"], f"{entry['id']}.{parameter['name']} says nothing"
            assert parameter["allowed"]


def test_signals_without_what_a_score_reads():
    fitted = case().fitted("vim")
    with pytest.raises(ScoreError, match="needs penultimate features"):
        fitted.compute(Signals(np.zeros((1, 6))))
    assert fitted.compute(Signals(np.zeros((0, 6)), np.zeros((0, 20)))).shape == (0,)


def test_negative_logits_keep_the_orientation():
    """A head whose logits are all below zero: vim's residual and nnguide's energies still count the right way."""
    made = case()
    low = Signals(made.fit.logits - 50, made.fit.features)
    rows = Signals(made.rows.logits - 50, made.rows.features)
    head = Head(made.head.weight, made.head.bias - 50, "gemm")
    far = Signals(rows.logits, 30 * np.random.default_rng(0).normal(size=rows.features.shape))
    data = FitData.of(low, made.labels, head)
    for id in ("vim", "nnguide"):
        fitted = fit_score(id, None, data)
        assert np.median(fitted.compute(rows)) > np.median(fitted.compute(far)), id
    assert "lifted" in fitted.notes[0]


def test_tables_of_class_by_class_have_a_limit(monkeypatch):
    monkeypatch.setattr("models.scores.families.fdbd.MOST_CLASSES", 5)
    for id in ("fdbd", "klm"):
        with pytest.raises(ScoreError, match=f"{id} keeps a table of class × class: at most 5 classes, got 6"):
            case().fitted(id)


def test_a_package_that_cannot_be_loaded_is_named(third_party):
    third_party(("broken", "no_such_package:Score"))
    with pytest.raises(ScoreError, match="broken = no_such_package:Score of an installed package cannot be loaded"):
        registry_of()
