"""What is added to a loss on pairs, each a part."""
