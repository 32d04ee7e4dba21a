"""Generators of reasoning-gym whose scorers hand the answer to Python's eval, some inside sympy."""

LITERAL = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""The answer may be a list in Python's spelling."""

EXPRESSION = frozenset(
    {"intermediate_integration", "polynomial_multiplication", "simple_integration"}
)
"""The answer is an expression of sympy."""

SANDBOXED = LITERAL | EXPRESSION | {"codeio"}
"""Scored in the sandbox alone; codeio compares JSON, of any depth."""
