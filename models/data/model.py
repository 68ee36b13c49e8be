"""What a data argument turns into: blocks of rows as they lie in the file, batches of items as the model takes them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.inputs import ImageInput, TensorInput

Spec = TensorInput | ImageInput
Reason = Literal["unreadable", "not_finite"]


@dataclass(frozen=True)
class Columns:
    """Which columns (or `.npz` members) hold what; a name left out is found by the usual names."""

    input: str | None = None
    label: str | None = None
    group: str | None = None
    id: str | None = None
    carry: tuple[str, ...] | None = None  # None carries every other column, () none of them
    labels: bool = True  # False leaves labels alone: the column, if any, is carried like any other


@dataclass(frozen=True)
class Rows:
    """Everything about a run of consecutive rows but their inputs."""

    start: int
    ids: pa.Array
    y: NDArray[np.int64] | None  # class index, OOD or UNLABELLED (see `labels`)
    names: pa.Array | None  # the label as text, where it came as text
    group: pa.Array | None
    carried: pa.Table

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Block:
    """Rows as read, cheap to make; `payload` is what `Source.decode` turns into items."""

    rows: Rows
    payload: Any


@dataclass(frozen=True)
class Fault:
    """Why an item has no score."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Items:
    """Inputs of one shape and their positions in the batch."""

    positions: NDArray[np.int64]
    x: NDArray[Any]


@dataclass(frozen=True)
class Batch:
    """Decoded rows: the readable inputs, and a fault for each of the others."""

    rows: Rows
    items: tuple[Items, ...]
    faults: dict[int, Fault] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[str]:
        ids: list[str] = self.rows.ids.to_pylist()
        return ids

    @property
    def y(self) -> NDArray[np.int64] | None:
        return self.rows.y


class Source(ABC):
    """Rows in a fixed order. Sources hold paths, not handles, so they can be sent to another process."""

    spec: Spec
    classes: tuple[str, ...] | None  # the class names behind the labels, where they are known

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def labelled(self) -> bool:
        """Whether rows have labels."""

    @property
    def item_bytes(self) -> int:
        """The size of a decoded item, for sizing batches."""
        sizes = (1 if size is None else size for size in self.spec.item_shape)
        return int(np.prod([*sizes], dtype=np.int64)) * self.spec.np_dtype.itemsize

    @property
    def natural_rows(self) -> int:
        """How many rows are best read by one reader, because starting in the middle of them costs."""
        return 1

    @property
    def stored_in(self) -> Iterable[str]:
        """The files that hold the rows; of a list, the list itself."""
        return ()

    @abstractmethod
    def fingerprint(self) -> str:
        """A digest that changes when the rows do (names, sizes and times; not the contents of every file)."""

    @abstractmethod
    def describe(self) -> str:
        """The source in words."""

    @abstractmethod
    def blocks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        """Rows `start` to `stop` in blocks of exactly `size`; only the last may be shorter."""

    @abstractmethod
    def decode(self, block: Block) -> Batch:
        """The inputs of a block; safe to call from several threads."""

    def batches(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """Blocks read and decoded one after the other."""
        return map(self.decode, self.blocks(size, start, stop))
