"""The ledger's tables, the same in SQLite and PostgreSQL.

sources    one row a (bundle, policy): what `decisions.source` stands for
decisions  one row an item, in the order they were written
labels     the present label of a decision, at most one
tallies    audit labels a source: how many, how many wrong; kept in step with `labels` by the same transaction
facts      single values: the schema's version, the salt of the audit draw
"""

import sqlalchemy as sa

SCHEMA_VERSION = "1"

metadata = sa.MetaData()
_Key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # only INTEGER keys are SQLite's own row number

facts = sa.Table(
    "facts", metadata, sa.Column("name", sa.String(40), primary_key=True), sa.Column("value", sa.Text, nullable=False)
)

sources = sa.Table(
    "sources",
    metadata,
    sa.Column("id", _Key, primary_key=True),
    sa.Column("bundle", sa.String(64), nullable=False),
    sa.Column("policy", sa.Integer, nullable=False),
    sa.UniqueConstraint("bundle", "policy"),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("id", _Key, primary_key=True),
    sa.Column("request_id", sa.String(128), nullable=False),
    sa.Column("item", sa.Integer, nullable=False),
    sa.Column("item_id", sa.Text),  # the caller's own id; null: "<request_id>-<item>"
    sa.Column("at", sa.Double, nullable=False),  # Unix seconds
    sa.Column("label", sa.Integer, nullable=False),
    sa.Column("s_id", sa.Double),  # null: not finite
    sa.Column("s_ood", sa.Double),
    sa.Column("reason", sa.SmallInteger, nullable=False),  # 0 accepted, else as in calibration.policy.REASONS
    sa.Column("source", sa.Integer, nullable=False),
    sa.Column("audit", sa.SmallInteger, nullable=False),
    sa.Column("propensity", sa.Double, nullable=False),  # the chance with which `audit` was drawn
    sa.Column("margin", sa.Double),  # of a reject: how far it is from being accepted
    sa.Column("labelled", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("input", sa.LargeBinary),  # a .npy file; null unless the operator asked to keep inputs
    sqlite_autoincrement=False,
)

recorded = [column for column in decisions.c if column.name != "input"]
"""What is known of a decision without its input, which may be large."""

sa.Index("decisions_request", decisions.c.request_id)
for _name, _columns, _where in (
    ("decisions_item", [decisions.c.item_id], decisions.c.item_id.is_not(None)),
    ("decisions_audit", [decisions.c.id], sa.and_(decisions.c.audit == 1, decisions.c.labelled == 0)),
    (
        "decisions_near",
        [decisions.c.margin, decisions.c.id],
        sa.and_(decisions.c.margin.is_not(None), decisions.c.labelled == 0),
    ),
):
    # Partial indexes: an ordinary accepted decision costs one index entry, not four.
    sa.Index(f"{_name}", *_columns, sqlite_where=_where, postgresql_where=_where)

labels = sa.Table(
    "labels",
    metadata,
    sa.Column("decision", _Key, primary_key=True, autoincrement=False),
    sa.Column("label", sa.Integer),  # null: OOD
    sa.Column("is_ood", sa.Boolean, nullable=False),
    sa.Column("wrong", sa.Boolean, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("revisions", sa.Integer, nullable=False, server_default="0"),
)

tallies = sa.Table(
    "tallies",
    metadata,
    sa.Column("source", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("labelled", sa.Integer, nullable=False),
    sa.Column("wrong", sa.Integer, nullable=False),
)
