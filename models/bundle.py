"""The artifact on disk: a directory with a manifest, the fused graph and a place for policies.

Every file is named in the manifest with its sha256 and the manifest carries a digest of itself, so that a bundle
either loads as it was built or does not load. Policies live beside it and change; they are no part of the digest.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import onnx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import BundleError
from models.inputs import InputSpec
from models.runtime import RuntimeOptions, Scorer
from models.staging import staged

if TYPE_CHECKING:
    from models.classifier import Classifier

FORMAT: Final = 1
MODEL_FILE = "model.onnx"
MANIFEST_FILE = "manifest.json"
POLICIES_DIR = "policies"


def _word(longest: int) -> str:
    return rf"^[A-Za-z0-9][A-Za-z0-9._-]{{0,{longest - 1}}}$"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GraphNames(_Frozen):
    """Values inside the fused graph from which the classifier can be opened again."""

    logits: str
    logits_kind: Literal["logits", "log_probabilities"]
    features: str | None
    fixed_batch: int | None = None


class Manifest(_Frozen):
    """Everything a reader of a bundle must know before running it."""

    format: Literal[1] = FORMAT
    name: str = Field(pattern=_word(100))
    version: str = Field(pattern=_word(50))
    created_at: str
    input: InputSpec
    classes: tuple[str, ...] = Field(min_length=2)
    scores: dict[Literal["s_id", "s_ood"], dict[str, Any]]
    graph: GraphNames
    runtime: RuntimeOptions
    provenance: dict[str, Any]
    files: dict[str, str]
    digest: str = ""

    def sealed(self) -> "Manifest":
        """The same with the digest of everything else in it."""
        return self.model_copy(update={"digest": document_digest(self.model_dump(mode="json"))})


def document_digest(document: Mapping[str, Any]) -> str:
    """sha256 of a manifest as it stands in its file, without its own digest, in canonical JSON.

    Of the document, not of the parsed model: a field that a later version adds must not spoil older bundles.
    """
    content = {key: value for key, value in document.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Bundle:
    """A verified bundle; make one with `Bundle.open` or `save_bundle`."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: str | Path) -> "Bundle":
        """Read and verify a bundle; any missing, damaged or unknown part is a `BundleError`."""
        root = Path(path)
        manifest = _read_manifest(root)
        for name, digest in manifest.files.items():
            _verify_file(root, name, digest)
        return cls(root, manifest)

    @property
    def hash(self) -> str:
        """Identity of model, scores and input together; policies are bound to it."""
        return self.manifest.digest

    @property
    def policies_dir(self) -> Path:
        """Where policies live unless a store is named elsewhere."""
        return self.path / POLICIES_DIR

    @property
    def model_path(self) -> Path:
        """The fused graph."""
        return self.path / MODEL_FILE

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The fused graph as a proto, for export and reopening."""
        return onnx.load(self.model_path)

    def classifier(self) -> "Classifier":
        """The classifier inside the fused graph, opened again: logits, features and head for other scores."""
        from models.classifier import Classifier
        from models.graph import with_outputs

        logits = self.manifest.graph.logits
        return Classifier.open(with_outputs(self.model, [logits]), output=logits)

    def options(self, **overrides: Any) -> RuntimeOptions:
        """The manifest's runtime options with the given ones replaced."""
        return RuntimeOptions(**{**self.manifest.runtime.model_dump(), **overrides})

    def scorer(self, options: RuntimeOptions | None = None) -> Scorer:
        """A warm scorer over the fused graph, by default as the manifest pins it."""
        fixed = self.manifest.graph.fixed_batch
        scorer = Scorer(self.model_path, options or self.manifest.runtime, fixed_batch=fixed)
        scorer.warm_up(self.manifest.input.example())
        return scorer


def check_names(name: str, version: str) -> None:
    """Refuse a name or a version that no manifest takes, before any work is done for it."""
    for what, text, longest in (("name", name, 100), ("version", version, 50)):
        if re.fullmatch(_word(longest), text) is None:
            raise BundleError(
                f"The {what} {text!r} is not allowed; give 1 to {longest} letters A to Z, digits, '.', '_' or '-', "
                "the first of them a letter or a digit."
            )


def check_target(out: str | Path, *, overwrite: bool) -> None:
    """Refuse a place where no bundle may be written: one that is taken, or one that holds something else."""
    target = Path(out)
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise BundleError(f"{target} exists already; choose another --out or give --overwrite.")
    if not _replaceable(target):
        raise BundleError(f"{target} is no bundle, so --overwrite does not replace it; choose another --out.")


def save_bundle(out: str | Path, manifest: Manifest, model: onnx.ModelProto, *, overwrite: bool = False) -> Bundle:
    """Write a bundle atomically: a complete directory appears under its name, or none does."""
    check_target(out, overwrite=overwrite)
    data = model.SerializeToString(deterministic=True)
    sealed = manifest.model_copy(update={"files": {MODEL_FILE: hashlib.sha256(data).hexdigest()}}).sealed()
    try:
        with staged(Path(out).resolve()) as staging:  # a link to a bundle stays, what it points to is replaced
            _write(staging / MODEL_FILE, data)
            _write(staging / MANIFEST_FILE, (sealed.model_dump_json(indent=2) + "\n").encode())
            (staging / POLICIES_DIR).mkdir()
    except OSError as fault:
        raise BundleError(f"{out} cannot be written ({fault.strerror}); choose another --out.") from fault
    return Bundle.open(out)


def utc_now() -> str:
    """The present in ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def file_sha256(path: Path) -> str:
    """sha256 of a file, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def jsonable(value: Any) -> Any:
    """NumPy scalars and arrays as plain Python, for manifests."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value


def _read_manifest(root: Path) -> Manifest:
    path = root / MANIFEST_FILE
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(
            f"{root} is not a bundle: it has no {MANIFEST_FILE}; make one with `airlock build`."
        ) from None
    except OSError as fault:
        raise BundleError(f"{path} cannot be read: {fault.strerror}.") from fault
    except ValueError as fault:
        raise BundleError(
            f"{path} is damaged: it is not valid JSON ({fault}); restore it or build the bundle again."
        ) from None
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise BundleError(
            f"{path} has format {found!r}, but this version of Airlock reads format {FORMAT}; "
            "build the bundle again or install the version that wrote it."
        )
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as fault:
        first = fault.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BundleError(
            f"{path} is damaged: {field}: {first['msg']}; restore it or build the bundle again."
        ) from None
    if manifest.digest != document_digest(document):
        raise BundleError(
            f"{path} is damaged: its content does not match its digest; restore it or build the bundle again."
        )
    return manifest


def _verify_file(root: Path, name: str, digest: str) -> None:
    path = root / name
    if Path(name).name != name:
        raise BundleError(f"{root} names a file outside itself ({name}); do not use this bundle.")
    if not path.is_file():
        raise BundleError(f"{root} is incomplete: {name} is missing; restore it or build the bundle again.")
    found = file_sha256(path)
    if found != digest:
        raise BundleError(
            f"{path} is damaged: its sha256 is {found[:12]}…, the manifest says {digest[:12]}…; "
            "restore it or build the bundle again."
        )


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _replaceable(target: Path) -> bool:
    """Whether a directory is a bundle, a damaged one, or empty: nothing else is ever removed."""
    if not target.is_dir():
        return False
    names = {entry.name for entry in target.iterdir()}
    return not names or (MANIFEST_FILE in names and bool(names & {MODEL_FILE, POLICIES_DIR}))
