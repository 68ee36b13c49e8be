"""The steps of opening a classifier: load, probe, free the batch axis, find the logits, find and prove the head."""
