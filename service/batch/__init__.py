"""Batch scoring jobs: files in, score tables out, on one machine or a Ray cluster."""

from service.batch.errors import JobError
from service.batch.job import Outcome, run
from service.batch.options import Job
from service.batch.probe import Wishes

__all__ = ["Job", "JobError", "Outcome", "Wishes", "run"]
