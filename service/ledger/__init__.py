"""The ledger: every decision, the labels that come later, and what is made of them."""

from service.ledger.engine import Database, LedgerError, ledger_url
from service.ledger.tables import score_table, since_time

__all__ = ["Database", "LedgerError", "ledger_url", "score_table", "since_time"]
