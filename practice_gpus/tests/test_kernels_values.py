"""Kernels of both compilers, executed from their PTX, give PyTorch's values: without this no count of them is worth anything."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build here", exc_type=ImportError)
from kernel_corpus import CASES, of_cuda, of_triton  # noqa: E402, F401

from practice_gpus import kernels  # noqa: E402

FAST = {
    "flash_attention",
    "scan",
    "transpose_tiled",
    "sum_by_shuffles",
    "bitonic_sort",
    "half_pairs",
}


def run_case(case, card="A100"):
    """Compile and run a case; returns (Compiled, Result)."""
    options = dict(case.options or {})
    if isinstance(case.kernel, str):
        signature = "k"
        options["threads"] = int(torch.tensor(case.block).prod())
    else:
        names = list(case.kernel.arg_names)
        signature = dict(zip(names, case.arguments, strict=False)) | case.constants
    compiled = kernels.compile(case.kernel, signature, card, **options)
    arguments = case.arguments
    if compiled.language == "triton":
        arguments = [signature[name] for name in compiled.parameters]
    return compiled, kernels.run(compiled, case.grid, case.block, *arguments)


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_values_are_pytorchs(name):
    torch.manual_seed(0)
    case = CASES[name]()
    run_case(case)
    torch.testing.assert_close(
        case.out, case.expected, rtol=case.tolerance, atol=case.tolerance, equal_nan=True
    )
