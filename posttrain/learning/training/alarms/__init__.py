"""What watches the curve of a run while it goes on, and warns or stops: one file per alarm."""
