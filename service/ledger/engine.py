"""Opening a ledger: SQLite in WAL mode by path, any PostgreSQL by URL."""

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from models.errors import ModelsError
from service.ledger import schema

FILE_NAME = "ledger.sqlite"
_READ = "airlock_read"
# A PostgreSQL host that has vanished is noticed in seconds, not in the quarter of an hour that TCP would take.
_PATIENCE = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10, "keepalives_interval": 5}


class LedgerError(ModelsError):
    """The ledger cannot be opened, or does not hold what was asked for."""


def ledger_url(source: str | Path) -> str:
    """The URL of a ledger named by a URL, a file, or the state directory that holds it."""
    if isinstance(source, str) and "://" in source:
        return source
    path = Path(source).expanduser()
    return f"sqlite:///{(path / FILE_NAME if path.is_dir() else path).absolute()}"


def check_url(source: str) -> None:
    """Refuse a URL of a kind that no ledger lives in; nothing is connected to."""
    _engine(ledger_url(source), create=True).dispose()


class Database:
    """Connections to a ledger whose tables exist."""

    def __init__(self, source: str | Path, *, create: bool = True) -> None:
        self.engine = _engine(ledger_url(source), create)
        self.sqlite = self.engine.dialect.name == "sqlite"
        try:
            self._prepare(create)
        except SQLAlchemyError as fault:
            self.engine.dispose()
            raise LedgerError(f"the ledger {self.shown} cannot be opened: {_cause(fault)}") from fault

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return self.engine.url.render_as_string(hide_password=True)

    def _prepare(self, create: bool) -> None:
        if create:
            self._create()
        with self.read() as connection:
            if not sa.inspect(connection).has_table("facts"):
                raise LedgerError(f"{self.shown} is not a ledger: it has no table `facts`")
            found = self.fact(connection, "schema")
        if found != schema.SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger {self.shown} has schema {found}, this version reads {schema.SCHEMA_VERSION}; "
                "use a matching version or another ledger"
            )

    def _create(self) -> None:
        """Make what is missing; workers that start together may all try."""
        with self.engine.begin() as connection:
            if not self.sqlite:  # CREATE IF NOT EXISTS still races in PostgreSQL
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(4242001)")
            schema.metadata.create_all(connection)
            for name, value in (("schema", schema.SCHEMA_VERSION), ("audit_salt", secrets.token_hex(16))):
                if self.fact(connection, name) is None:
                    connection.execute(schema.facts.insert().values(name=name, value=value))

    @staticmethod
    def fact(connection: sa.Connection, name: str) -> str | None:
        """A single value of the ledger."""
        query = sa.select(schema.facts.c.value).where(schema.facts.c.name == name)
        value: str | None = connection.execute(query).scalar()
        return value

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A consistent view; takes no write lock."""
        with self.engine.connect().execution_options(**{_READ: True}) as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """One transaction, on disk when the block is left."""
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        """One transaction of SQLite on the driver's own cursor, which costs less than `write`, for the busiest path."""
        with closing(self.engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            cursor.execute("COMMIT")  # without it the pool rolls back

    def source(self, bundle: str, policy: int) -> int:
        """The number that stands for a bundle and a policy."""
        table = schema.sources
        query = sa.select(table.c.id).where(table.c.bundle == bundle, table.c.policy == policy)
        for _ in range(2):
            with self.read() as connection:
                known = connection.execute(query).scalar()
            if known is not None:
                return int(known)
            try:
                with self.write() as connection:
                    connection.execute(table.insert().values(bundle=bundle, policy=policy))
            except IntegrityError:
                continue  # another worker was quicker
        with self.read() as connection:
            return int(connection.execute(query).scalar_one())

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()


def _engine(url: str, create: bool) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        if parsed.drivername in {"postgresql", "postgres"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError) as fault:
        raise LedgerError("the ledger's URL cannot be read; use sqlite:///PATH or postgresql://…") from fault
    if backend == "sqlite":
        return _sqlite(parsed, create)
    if backend != "postgresql":
        raise LedgerError(
            f"a ledger lives in SQLite or PostgreSQL, {backend!r} arrived; use sqlite:/// or postgresql://"
        )
    patience = {name: value for name, value in _PATIENCE.items() if name not in parsed.query}
    try:
        return sa.create_engine(parsed, connect_args=patience, pool_pre_ping=True, pool_size=4, max_overflow=4)
    except ModuleNotFoundError as fault:
        raise LedgerError("PostgreSQL needs the package psycopg: pip install 'airlock-gate[postgres]'") from fault


def _sqlite(url: sa.URL, create: bool) -> sa.Engine:
    path = Path(url.database or "")
    if not create and not path.is_file():
        raise LedgerError(f"there is no ledger at {path}; give the file, the state directory or a URL")
    engine = sa.create_engine(url, connect_args={"timeout": 30}, pool_size=4, max_overflow=4)

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun by us, below
        cursor = connection.cursor()
        for pragma in (
            "auto_vacuum=INCREMENTAL",  # so that pruning gives space back; only before the first table
            "journal_mode=WAL",
            "synchronous=FULL",  # a commit is on disk: nothing acknowledged is lost in a power cut
            "journal_size_limit=67108864",
            "wal_autocheckpoint=4000",  # pages: pages that change often are copied into the file less often
            "cache_size=-16384",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # A transaction that reads first and writes later could find the file changed in between: lock at once.
        reading = connection.get_execution_options().get(_READ, False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    return engine


def _cause(fault: SQLAlchemyError) -> str:
    """The driver's own words, on one line."""
    return " ".join(str(getattr(fault, "orig", None) or fault).split())
