"""The policy store: a directory of numbered, never-changing files and one pointer.

    0001.json  0002.json  ...   policies, each written once
    active                      {"active": 2, "history": [...]}: which one judges, and every switch so far

Each file appears whole or not at all (written aside, fsynced, then linked or renamed), so a process killed at any
point leaves a readable store. Writers on one machine take turns through a lock that the kernel releases when its
holder dies.
"""

import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import mkstemp
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from calibration.errors import StoreError
from calibration.policy import Policy

try:
    import fcntl
except ImportError:  # not a POSIX system: exclusive file creation alone keeps the numbering safe there
    fcntl = None  # type: ignore[assignment]

_NUMBERED = re.compile(r"^(\d{4,})\.json$")
_STALE_SECONDS = 3600
Token = tuple[int, int, int] | None


class Switch(BaseModel):
    """One entry of the history: what was made active, when, and whether a refusal was overruled."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    action: Literal["activate", "rollback"] = "activate"
    at: datetime
    status: str = "candidate"  # of the policy at that time
    forced: bool = False
    note: str | None = None


class Pointer(BaseModel):
    """The content of the `active` file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    active: int
    history: tuple[Switch, ...]

    def previous(self) -> int | None:
        """The policy that was active before the present one; rolling back twice goes two steps back."""
        stack: list[int] = []
        for switch in self.history:
            if switch.action == "rollback":
                stack.pop()
            elif not stack or stack[-1] != switch.number:
                stack.append(switch.number)
        return stack[-2] if len(stack) > 1 else None


class PolicyStore:
    """Append-only numbered policies of one bundle, with an atomically replaced `active` pointer."""

    def __init__(self, directory: str | Path, bundle: str | None = None) -> None:
        self.directory = Path(directory)
        self.bundle = bundle

    def add(self, policy: Policy) -> Policy:
        """Store a policy under the next number and return it numbered."""
        policy.check_bundle(self.bundle)
        with self._locked():
            self._sweep()
            number = max(self._numbers(), default=0) + 1
            while True:
                changes = {"number": number, "bundle": policy.bundle or self.bundle}
                numbered = policy.model_copy(update=changes)
                if _create(self._path(number), numbered.to_json()):
                    return numbered
                number += 1

    def list(self) -> Sequence[Policy]:
        """Every policy, oldest first."""
        return [self.get(number) for number in self._numbers()]

    def get(self, number: int) -> Policy:
        """The policy with this number, refused if it was made for another bundle."""
        path = self._path(number)
        if not path.is_file():
            known = ", ".join(str(n) for n in self._numbers()[-8:]) or "none yet"
            raise StoreError(f"there is no policy {number} in {self.directory} (there are: {known})")
        return Policy.read(path, bundle=self.bundle)

    def active(self) -> Policy | None:
        """The policy that judges now, None when none was ever activated."""
        pointer = self.pointer()
        return None if pointer is None else self.get(pointer.active)

    def activate(self, number: int, force: bool = False, note: str | None = None) -> Policy:
        """Make a policy the active one; a rejected policy needs `force`, and the force is recorded."""
        policy = self.get(number)
        forced = policy.status == "rejected"
        if forced and not force:
            why = "; ".join(policy.status_reasons) or "it missed its own claim"
            raise StoreError(
                f"policy {number} was rejected ({why}); activate it with --force if you must, it is recorded"
            )
        self._switch(Switch(number=number, at=_now(), status=policy.status, forced=forced, note=note))
        return policy

    def rollback(self, note: str | None = None) -> Policy:
        """Return to the policy that was active before the present one."""
        with self._locked():
            pointer = self.pointer()
            previous = None if pointer is None else pointer.previous()
            if pointer is None or previous is None:
                raise StoreError(f"there is nothing to roll back to in {self.directory}: no earlier policy was active")
            policy = self.get(previous)
            switch = Switch(number=previous, action="rollback", at=_now(), status=policy.status, note=note)
            self._write_pointer(pointer, switch)
        return policy

    def history(self) -> tuple[Switch, ...]:
        """Every activation and rollback, oldest first."""
        pointer = self.pointer()
        return () if pointer is None else pointer.history

    def pointer(self) -> Pointer | None:
        """The parsed `active` file."""
        try:
            document = self._pointer_path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {self._pointer_path}: {error.strerror}") from error
        try:
            return Pointer.model_validate_json(document)
        except ValidationError as error:
            raise StoreError(f"{self._pointer_path} is damaged: restore it or activate a policy anew") from error

    def token(self) -> Token:
        """A cheap value that changes whenever the active policy may have changed; None without one."""
        try:
            stat = os.stat(self._pointer_path)
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    @property
    def _pointer_path(self) -> Path:
        return self.directory / "active"

    def _path(self, number: int) -> Path:
        return self.directory / f"{number:04d}.json"

    def _numbers(self) -> tuple[int, ...]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"cannot read the policy store {self.directory}: {error.strerror}") from error
        return tuple(sorted(int(match.group(1)) for name in names if (match := _NUMBERED.match(name))))

    def _sweep(self) -> None:
        """Remove what writers left behind that were killed long ago."""
        for pattern in (".*.json.*", f".{self._pointer_path.name}.*"):
            for leftover in self.directory.glob(pattern):
                with suppress(OSError):
                    if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                        leftover.unlink()

    def _switch(self, switch: Switch) -> None:
        with self._locked():
            self._write_pointer(self._pointer_or_none(), switch)

    def _pointer_or_none(self) -> Pointer | None:
        """A damaged pointer must not stop the activation that repairs it."""
        try:
            return self.pointer()
        except StoreError:
            return None

    def _write_pointer(self, pointer: Pointer | None, switch: Switch) -> None:
        history = () if pointer is None else pointer.history
        document = Pointer(active=switch.number, history=(*history, switch))
        write_atomic(self._pointer_path, document.model_dump_json(indent=2).encode() + b"\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time on this machine."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"cannot write in the policy store {self.directory}: {error.strerror}") from error
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file whole: written aside, fsynced, renamed, directory fsynced."""
    with _aside(path, content) as temporary:
        os.replace(temporary, path)
    _sync_directory(path.parent)


def _create(path: Path, content: bytes) -> bool:
    """Create a file that must not exist yet; False when it does. Hard links make this atomic and exclusive."""
    with _aside(path, content) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EACCES, errno.ENOSYS, errno.EMLINK}:
                raise
            # A file system without hard links: the store's lock is what keeps writers apart.
            if path.exists():
                return False
            os.rename(temporary, path)
    _sync_directory(path.parent)
    return True


@contextmanager
def _aside(path: Path, content: bytes) -> Iterator[str]:
    """The content, durable, in a temporary file next to `path`; gone afterwards unless it was moved."""
    try:
        descriptor, temporary = mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    """Make a rename survive a power cut; not every platform can open a directory."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _now() -> datetime:
    return datetime.now(UTC)


__all__ = ["Pointer", "PolicyStore", "Switch", "Token", "write_atomic"]
