"""Products of 16-bit numbers, on CPUs without units for them, in float32: as exact, and not slow."""

import pytest
import torch
from torch.nn import functional as F

from practice_gpus import practice_gpus

PRODUCTS = {
    "matmul": (torch.matmul, (64, 48), (48, 32)),
    "bmm": (torch.bmm, (4, 64, 48), (4, 48, 32)),
    "addmm": (torch.addmm, (32,), (64, 48), (48, 32)),
    "mv": (torch.mv, (64, 48), (48,)),
    "conv2d": (F.conv2d, (2, 4, 9, 9), (8, 4, 3, 3)),
    "depthwise": (lambda x, w: F.conv2d(x, w, groups=4), (2, 4, 9, 9), (4, 1, 3, 3)),
    "transposed": (F.conv_transpose2d, (2, 4, 9, 9), (4, 8, 3, 3)),
}


QKV = [torch.Size((2, 4, 32, 16))] * 3


def results(multiply, inputs):
    """The product, and the gradients."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    out = multiply(*inputs)
    out.backward(torch.ones_like(out))
    return [x.double().cpu() for x in (out.detach(), *(x.grad for x in inputs))]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_products_are_rounded_once_and_the_cpus_kernels_are_no_closer(product, dtype):
    multiply, *shapes = product
    torch.manual_seed(0)
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    exact = results(multiply, [x.double() for x in inputs])
    plain = results(multiply, inputs)
    with practice_gpus(1):
        practice = results(multiply, [x.cuda() for x in inputs])
    for ours, theirs, true in zip(practice, plain, exact, strict=True):
        rounding = torch.finfo(dtype).eps * true.abs().clamp(min=0.02)
        assert (ours - true).abs().le(rounding).all()
        assert (ours - true).norm() <= 1.01 * (theirs - true).norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_attention_is_that_of_the_cpus_kernel_but_for_rounding(dtype):
    torch.manual_seed(0)
    inputs = [torch.randn(shape).to(dtype) for shape in QKV]
    exact = results(F.scaled_dot_product_attention, [x.double() for x in inputs])
    plain = results(F.scaled_dot_product_attention, inputs)
    with practice_gpus(1):
        practice = results(F.scaled_dot_product_attention, [x.cuda() for x in inputs])
    for ours, theirs, true in zip(practice, plain, exact, strict=True):
        assert (ours - true).norm() <= 1.05 * (theirs - true).norm()


def test_exact_results_are_exact():
    a = torch.randint(-8, 8, (64, 64)).bfloat16()
    with practice_gpus(1):
        assert torch.equal((a.cuda() @ a.cuda()).cpu(), a @ a)


def test_mixed_types_are_refused_as_before():
    with practice_gpus(1), pytest.raises(RuntimeError, match="same dtype"):
        torch.ones(2, 2, device="cuda").bfloat16() @ torch.ones(2, 2, device="cuda")
