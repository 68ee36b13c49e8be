"""A bundle and a policy answer requests: the HTTP service, batch jobs and the `airlock` command."""
