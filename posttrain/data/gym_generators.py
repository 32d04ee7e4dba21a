"""Generators of reasoning-gym whose answers need care: run as code, or of several lines."""

SEVERAL_LINES = frozenset(
    {
        "arc_agi",
        "binary_matrix",
        "futoshiki",
        "kakurasu",
        "manipulate_matrix",
        "mini_sudoku",
        "modulo_grid",
        "n_queens",
        "pool_matrix",
        "rearc",
        "rotate_matrix",
        "sudoku",
        "survo",
        "tower_of_hanoi",
    }
)
"""The answer has more than one line."""

STATES_NO_ANSWER = frozenset(
    {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
)
"""It states no answer, and scores what is given."""

LITERAL = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""The scorer hands the answer to Python's eval, as it may be a list in Python's spelling."""

EXPRESSION = frozenset(
    {"intermediate_integration", "polynomial_multiplication", "simple_integration"}
)
"""The answer is an expression of sympy, which reads it by Python's eval."""

SANDBOXED = LITERAL | EXPRESSION | {"codeio"}
"""Scored in the sandbox alone; codeio compares JSON, of any depth."""
