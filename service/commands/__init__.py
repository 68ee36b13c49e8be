"""One module a subcommand of `airlock`; each holds a click command called `command`."""
