"""How a scheduled number goes from one value to another: one shape a file."""
