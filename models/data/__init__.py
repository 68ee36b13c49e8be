"""Every data argument of the command line, opened as batches a model takes.

`open_source` streams, `load_arrays` holds everything in memory. Labels are class indices; `OOD` (−1) marks an
item of no class, `UNLABELLED` (−2) a row without a label.
"""

from models.data.files import absolute
from models.data.labels import OOD, UNLABELLED
from models.data.model import Batch, Block, Columns, Fault, Items, Rows, Source
from models.data.opening import load_arrays, open_source

__all__ = [
    "OOD", "UNLABELLED", "Batch", "Block", "Columns", "Fault", "Items", "Rows", "Source", "absolute",
    "load_arrays", "open_source",
]  # fmt: skip
