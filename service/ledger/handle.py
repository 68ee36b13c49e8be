"""One worker's hold on the ledger: opened when first needed, tried again when the database was away."""

import threading
import time
from pathlib import Path

from service.ledger.engine import FILE_NAME, Database, LedgerError
from service.ledger.keeping import Limits
from service.monitoring.audit import Audit
from service.settings_monitoring import MonitoringSettings

_RETRY_SECONDS = 5.0


class Ledger:
    """The ledger of a bundle; a database that cannot be reached is a `LedgerError`, never a failed start."""

    def __init__(self, settings: MonitoringSettings, state_dir: Path, bundle: str) -> None:
        url = settings.ledger_url
        self._url = url.get_secret_value() if url is not None else str(state_dir / FILE_NAME)
        self._settings, self.bundle = settings, bundle
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._audit: Audit | None = None
        self._refusal: LedgerError | None = None
        self._tried = float("-inf")

    def open(self) -> Database:
        """The database; after a failure the next attempt is made some seconds later."""
        with self._lock:
            if self._database is None:
                self._database = self._attempt()
            return self._database

    def _attempt(self) -> Database:
        if self._refusal is not None and time.monotonic() - self._tried < _RETRY_SECONDS:
            raise self._refusal
        try:
            database = Database(self._url)
            with database.read() as connection:
                salt = Database.fact(connection, "audit_salt") or ""
        except LedgerError as refusal:
            # Counted from its end: an attempt that hangs must not be followed by one for everybody who waited.
            self._refusal, self._tried = refusal, time.monotonic()
            raise
        settings = self._settings
        self._audit = Audit(salt, settings.audit_share, settings.audit_share_rejected)
        self._refusal = None
        return database

    def audit(self) -> Audit:
        """The audit draw, keyed by this ledger's secret."""
        self.open()
        assert self._audit is not None  # made when the database was opened
        return self._audit

    def source(self, policy: int) -> int:
        """The number that stands for this bundle and a policy."""
        return self.open().source(self.bundle, policy)

    def limits(self) -> Limits:
        """What may stay in it."""
        settings = self._settings
        return Limits(
            settings.ledger_retention_days,
            settings.ledger_labelled_days,
            settings.ledger_max_rows,
            settings.ledger_max_bytes,
        )

    def close(self) -> None:
        """Let go of all connections."""
        if self._database is not None:
            self._database.close()
