"""The gates: what each asks for, and how it is decided."""
