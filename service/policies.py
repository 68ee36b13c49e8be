"""Which policy a command means: a number in the store, a file, or the active one."""

from pathlib import Path

from calibration.errors import StoreError
from calibration.policy import Policy
from calibration.store import PolicyStore
from models.bundle import Bundle


def open_store(bundle: Bundle, directory: str | Path | None = None) -> PolicyStore:
    """The bundle's policy store: inside it, or the directory that is named."""
    return PolicyStore(Path(directory) if directory else bundle.policies_dir, bundle.hash)


def find_policy(bundle: Bundle, asked: str | None = None, directory: str | Path | None = None) -> Policy:
    """The policy that is asked for by number or file, else the active one; always one made for this bundle."""
    if asked is not None and not asked.isdecimal():
        return Policy.read(asked, bundle=bundle.hash)
    store = open_store(bundle, directory)
    if asked is not None:
        return store.get(int(asked))
    policy = store.active()
    if policy is None:
        raise StoreError(
            f"{bundle.path} has no active policy; make one with `airlock calibrate` or name one with --policy."
        )
    return policy
