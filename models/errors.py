"""What can go wrong on the way from a model to a score, by who can mend it.

ModelsError
├── ClassifierError   the ONNX file is not a classifier we can open
├── ScoreError        a score id, its parameters or its fit data do not fit
├── InputError        what a caller sent is not what the model takes
├── DataError         a data argument (file, folder, table) cannot be read
├── BundleError       a bundle on disk is missing, damaged or of another format
└── RuntimeFault      ONNX Runtime could not run the graph

Each message is one sentence for the person who can act on it: what arrived, what is allowed, what to do.
"""


class ModelsError(ValueError):
    """Base of every refusal raised by `models`."""


class ClassifierError(ModelsError):
    """The ONNX file cannot be opened as a classifier."""


class ScoreError(ModelsError):
    """An unknown score, wrong parameters, or fit data a score cannot use."""


class InputError(ModelsError):
    """An input does not match the model's input specification.

    `index` is the offending item's position in the batch where one item is to blame.
    """

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class DataError(ModelsError):
    """A data argument cannot be read."""


class BundleError(ModelsError):
    """A bundle is missing, damaged, or written in an unknown format."""


class RuntimeFault(ModelsError):
    """ONNX Runtime refused or failed to run the graph."""
