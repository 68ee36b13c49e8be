"""The HTTP layer: a small router under BentoML's server, with both protocols and the run-time administration."""
