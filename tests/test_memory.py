"""helpers.memory against NumPy, and sizes written by hand."""

import numpy as np
import pytest
import torch

from helpers.memory import format_bytes, tensor_bytes

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_tensor_bytes_are_numpys(dtype, shape):
    tensor = torch.zeros(shape, dtype=getattr(torch, dtype))
    assert tensor_bytes(tensor) == np.zeros(shape, dtype).nbytes


@pytest.mark.parametrize(
    "n, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (10**6, "977 KiB"),
        (2**20 - 1, "1 MiB"),
        (2**30 * 5 + 2**30 // 2, "5.5 GiB"),
        (5000 * 2**40, "5000 TiB"),
        (-1536, "-1.5 KiB"),
        (1234567, "1.18 MiB"),
        (-0.2, "0 B"),
    ],
)
def test_format_bytes(n, text):
    assert format_bytes(n) == text
