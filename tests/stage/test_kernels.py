"""Portable kernels: every library takes those of AVX2, and what they come to is one number."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from posttrain.stage.kernels import PORTABLE, kernel_environment

# What `benchmarks.reliability.portable` prints elsewhere, too: docs/reliability.md lists where.
REFERENCE = "292bd7222bad76fb44ec7fecd494771e4406af5be5eb746a6e5b5e3b1202ed3b"

TRAINING = textwrap.dedent(
    """
    import hashlib, json, sys
    import torch
    from torch import nn
    from torch.nn import functional as F

    from posttrain.stage.kernels import bind_kernels, bound_kernels

    bind_kernels(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.RMSNorm(64) for _ in range(2))
            self.sizes = ((64, 192), (64, 64), (64, 160), (160, 64))
            self.linears = nn.ModuleList(nn.Linear(*each, bias=False) for each in self.sizes)

        def forward(self, x):
            qkv, out, up, down = self.linears
            heads = qkv(self.norms[0](x)).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(*heads, is_causal=True)
            x = x + out(y.transpose(1, 2).reshape(x.shape))
            return x + down(F.silu(up(self.norms[1](x))))

    model = nn.Sequential(nn.Embedding(50, 64), Block(), Block(), nn.Linear(64, 50, bias=False))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    tokens = torch.randint(0, 50, (8, 16, 34))
    for step in tokens:
        logits = model(step[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), step[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    found = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    print(json.dumps({**bound_kernels(), "weights": found.hexdigest()}))
    """
)


def trained(kernels, **environment):
    inherited = {name: value for name, value in os.environ.items() if name not in PORTABLE}
    run = subprocess.run(
        [sys.executable, "-c", TRAINING, kernels],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


pytestmark = pytest.mark.skipif(
    "avx2" not in Path("/proc/cpuinfo").read_text(), reason="needs a processor with AVX2"
)


CHOSEN = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
BOUND = {
    "kernels": "portable",
    "torch": "AVX2",
    "mkl": "AVX2",
    "onednn": "AVX2",
    "numpy": "AVX2",
    "openblas": "Haswell",
}


@pytest.mark.slow
def test_every_library_is_bound_and_portable_weights_are_those_of_every_processor():
    found = trained("portable", **kernel_environment("portable"))
    assert found == {**BOUND, "weights": REFERENCE}


# One more process that imports torch and an optimizer: five seconds.
@pytest.mark.slow
def test_variables_of_a_person_do_not_move_portable_kernels():
    assert trained("portable", **CHOSEN)["weights"] == REFERENCE


# The control: it imports torch in one more process.
@pytest.mark.slow
def test_what_a_person_chose_is_found_where_kernels_are_fast():
    found = trained("fast", **CHOSEN)
    assert (found["torch"], found["mkl"], found["kernels"]) == ("DEFAULT", "COMPATIBLE", "own")
    # These sum in another order: the test above can fail.
    assert found["weights"] != REFERENCE
