"""What a thing is and where it came from: code closure, key, digests, ledger, DVC, lineage."""
