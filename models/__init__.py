"""A classifier becomes a bundle: open an ONNX model, fit scores, fuse them into one graph, run it."""
