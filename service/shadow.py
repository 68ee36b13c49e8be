"""Which stored policy is judged in the shadow: a pointer file beside the `active` one, replaced atomically."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibration.errors import StoreError
from calibration.store import Token, write_atomic


class _Pointer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    shadow: int = Field(ge=1)


class ShadowPointer:
    """The `shadow` file of a policy store; absent means no policy is shadowed."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "shadow"

    def read(self) -> int | None:
        """The number of the shadowed policy."""
        try:
            return _Pointer.model_validate_json(self._path.read_bytes()).shadow
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise StoreError(f"cannot read {self._path}: {fault.strerror}") from fault
        except ValidationError as fault:
            raise StoreError(f"{self._path} is damaged: set the shadow policy anew") from fault

    def write(self, number: int | None) -> None:
        """Point at a policy, or at none."""
        if number is not None:
            write_atomic(self._path, _Pointer(shadow=number).model_dump_json().encode() + b"\n")
            return
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
        except OSError as fault:
            raise StoreError(f"cannot remove {self._path}: {fault.strerror}") from fault

    def token(self) -> Token:
        """A value that changes whenever the pointer may have; None without one."""
        try:
            stat = os.stat(self._path)
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size
