"""Tables between stages, and the parts that curate them."""
