"""A classifier becomes a bundle: open an ONNX model, fit scores, fuse them into one graph, run it."""

import os

# ONNX Runtime reports its use unless told otherwise before it is imported; nothing of ours calls home.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
