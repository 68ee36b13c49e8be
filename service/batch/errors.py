"""What can stop a batch job."""

from models.errors import ModelsError


class JobError(ModelsError):
    """A batch job cannot start, or was told to stop; what was written stays and can be resumed."""
