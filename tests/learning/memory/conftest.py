"""A model whose bytes are counted by hand."""

import pytest

from posttrain.learning.memory.shapes import LinearShape, ModelShapes


@pytest.fixture
def shapes():
    """Two layers 4 wide, of 2 heads 2 wide on one key, with a gated MLP of 6; ten tokens, tied."""
    layer = {"q_proj": (4, 4), "k_proj": (4, 2), "v_proj": (4, 2), "o_proj": (4, 4)}
    layer |= {"gate_proj": (4, 6), "up_proj": (4, 6), "down_proj": (6, 4)}
    return ModelShapes(
        family="llama",
        # Of a layer 16 + 8 + 8 + 16 + 3 x 24 = 120 and two norms; the last norm; 40 of embeddings.
        parameters=2 * (120 + 8) + 4 + 40,
        embedding=40,
        head=0,
        vocabulary=10,
        hidden=4,
        layers=2,
        heads=2,
        kv_heads=1,
        head_size=2,
        mlp=6,
        gated=True,
        context=64,
        linears=tuple(
            LinearShape(f"model.layers.{index}.{name}", *widths)
            for index in range(2)
            for name, widths in layer.items()
        ),
    )
