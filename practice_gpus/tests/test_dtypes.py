"""What CUDA refuses is refused here, in CUDA's words: code that passes would fail on the day it meets a GPU."""

import io
import mmap
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from practice_gpus.pytorch import determinism, dtypes

HERE = Path(__file__).resolve().parent


def numbers(*shape, dtype=torch.int64):
    """Return ones on the practice GPU."""
    return torch.ones(shape, dtype=dtype, device="cuda")


REFUSED = {
    "long @ long": (
        lambda: numbers(2, 2) @ numbers(2, 2),
        "\"addmm_cuda\" not implemented for 'Long'",
    ),
    "bmm": (
        lambda: numbers(1, 2, 2).bmm(numbers(1, 2, 2)),
        "\"baddbmm_cuda\" not implemented for 'Long'",
    ),
    "mv": (lambda: numbers(2, 2) @ numbers(2), "\"addmv_impl_cuda\" not implemented for 'Long'"),
    "dot": (lambda: numbers(2) @ numbers(2), "\"dot\" not implemented for 'Long'"),
    "conv2d": (
        lambda: F.conv2d(numbers(1, 1, 3, 3), numbers(1, 1, 2, 2)),
        "getCudnnDataTypeFromScalarType() not supported for Long",
    ),
    "avg_pool2d": (
        lambda: F.avg_pool2d(numbers(1, 1, 2, 2), 2),
        "\"avg_pool2d_out_cuda_frame\" not implemented for 'Long'",
    ),
    "interpolate": (
        lambda: F.interpolate(numbers(1, 1, 2, 2, dtype=torch.uint8), 4, mode="bilinear"),
        "\"upsample_bilinear2d_out_frame\" not implemented for 'Byte'",
    ),
    "igamma": (
        lambda: torch.igamma(*[numbers(2, dtype=torch.float16)] * 2),
        "\"igamma_cuda\" not implemented for 'Half'",
    ),
    "histogram": (
        lambda: torch.histogram(numbers(3, dtype=torch.float32), 2),
        "Could not run 'aten::histogram",
    ),
    "float8": (
        lambda: torch._scaled_mm(
            *[numbers(16, 16, dtype=torch.float8_e5m2)] * 2, numbers(1), numbers(1)
        ),
        "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_dtypes_that_cuda_lacks_are_refused_in_its_words(gpus, name):
    act, words = REFUSED[name]
    with pytest.raises((NotImplementedError, RuntimeError)) as told:
        act()
    assert str(told.value).startswith(words)


def test_products_of_complex_numbers_are_not_scattered(gpus):
    zero = torch.zeros(2, dtype=torch.int64, device="cuda")
    x = torch.ones(2, dtype=torch.complex64, device="cuda")
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        x.scatter_(0, zero, x.clone(), reduce="multiply")


NOT_DETERMINISTIC = {
    "upsample_bilinear2d_backward_out_cuda": lambda x: (
        torch._C._nn.upsample_bilinear2d(x, (8, 8), False).sum().backward()
    ),
    "_bincount_cuda": lambda x: torch.bincount(numbers(3), weights=torch.ones(3, device="cuda")),
    "median CUDA with indices output": lambda x: x.median(dim=0),
}


@pytest.mark.parametrize("name", NOT_DETERMINISTIC)
def test_kernels_that_are_not_deterministic_say_so_when_asked(gpus, name):
    """Who debugs a training that differs from run to run would be told on the GPU only."""
    x = torch.ones(1, 1, 4, 4, device="cuda", requires_grad=True)
    NOT_DETERMINISTIC[name](x)
    torch.use_deterministic_algorithms(True)
    try:
        torch.median(x), torch.bincount(numbers(3))  # these are
        with pytest.raises(RuntimeError, match=f"^{name} does not have a deterministic implem"):
            NOT_DETERMINISTIC[name](x)
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=f"^{name} does not have a deterministic implem"):
            NOT_DETERMINISTIC[name](x)
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_cpu_keeps_what_it_can(gpus):
    ones = torch.ones(2, 2, dtype=torch.int64)
    assert (ones @ ones).tolist() == [[2, 2], [2, 2]]


# The tables don't name these dtypes; PyTorch's CUDA build takes them all the same (seen over the oracle's stand-in).
RUNS_ON_CUDA = {f"{name} complex32: different: it runs" for name in ("norm", "norm.inf")}


@pytest.mark.slow
def test_every_operator_takes_the_dtypes_that_pytorch_s_tables_name_for_cuda():
    """A new PyTorch shows its differences by itself."""
    pytest.importorskip("expecttest", reason="PyTorch's tables of operators import it")
    if torch.cuda.is_available():
        pytest.skip("these GPUs are real")
    line = [sys.executable, str(HERE / "operator_dtypes.py")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 200
    differ = {line for line in lines if not line.endswith((": equal", ": refused"))}
    assert differ - RUNS_ON_CUDA == set()


@pytest.mark.skipif(not torch.version.cuda, reason="asks the libraries of PyTorch's CUDA build")
def test_names_in_messages_are_in_pytorch_s_cuda_library():
    """Names of other releases would not be found by whoever searches for them."""
    library = Path(torch.__file__).parent / "lib/libtorch_cuda.so"
    names = {name for name, _ in dtypes.KERNELS.values()} | {dtypes.SCATTER[0]}
    names |= set(determinism.ALERTS.values())
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        missing = [name for name in names if text.find(name.encode() + b"\0") < 0]
        texts = (dtypes.FLOAT8, dtypes.CUDNN.partition("{")[0])
        missing += [name for name in texts if text.find(name.encode()) < 0]
    assert missing == []


@pytest.mark.skipif(not torch.version.cuda, reason="asks the dispatcher of PyTorch's CUDA build")
def test_operators_of_the_cpu_alone_are_those_of_the_dispatcher():
    runs_on = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    alone = set()
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(
            name, "CPU"
        ):
            if not runs_on(name, "CUDA"):
                alone.add(name.removeprefix("aten::").split(".")[0])
    # what PyTorch chooses itself for tensors of the CPU, or makes there, or has for its own tests
    chosen = "cpu mkldnn_rnn slow_conv3d _test from_file _make_dep narrow_copy quantize _quantized _spdiags _dyn_quant"
    chosen += " _assert_async _foobar lanczos2d_aa_backward _per_channel quantized_"
    own = {name for name in alone if any(part in name for part in chosen.split())}
    assert alone - own == (dtypes.CPU_ONLY & alone) - own and len(dtypes.CPU_ONLY & alone) > 4


def test_integers_divided_by_zero_raise_nothing(gpus):
    x = torch.tensor([7, -3], device="cuda")
    zeros = torch.zeros_like(x)
    for out in (x // 0, x % 0, x // zeros, torch.fmod(x, zeros), x.clone().remainder_(zeros)):
        assert out.is_cuda and out.shape == x.shape and out.dtype == x.dtype
    assert (x // torch.tensor([2, 0], device="cuda"))[0].item() == 3
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.tensor([7]) // 0


OUTSIDE = {
    "index": lambda: numbers(3)[torch.tensor([5], device="cuda")],
    "take": lambda: numbers(3).take(torch.tensor([5], device="cuda")),
    "embedding_bag": lambda: F.embedding_bag(
        torch.tensor([[9]], device="cuda"), torch.ones(3, 2, device="cuda")
    ),
    "cross_entropy": lambda: F.cross_entropy(
        torch.ones(1, 3, device="cuda"), torch.tensor([3], device="cuda")
    ),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(
        torch.tensor([1.5], device="cuda"), torch.ones(1, device="cuda")
    ),
    "bernoulli": lambda: torch.bernoulli(torch.tensor([1.5], device="cuda")),
    "_assert_async": lambda: torch._assert_async(torch.tensor(0, device="cuda")),
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", OUTSIDE)
def test_values_that_do_not_fit_are_device_side_asserts(imitated, name, asynchronous):
    with imitated(1, asynchronous=asynchronous):
        with pytest.raises(torch.AcceleratorError) as told:
            OUTSIDE[name]()
            torch.cuda.synchronize()
        assert told.value.error_code == 710
        first, second, *_ = str(told.value).splitlines()
        assert first == "CUDA error: device-side assert triggered"
        assert second.startswith("Search for `cudaErrorAssert' in https://docs.nvidia.com/cuda/")
        assert numbers(2).sum().item() == 2  # the device goes on working, unless asked otherwise


def test_an_index_that_is_checked_before_the_launch_stays_an_index_error(gpus):
    with pytest.raises(IndexError, match="Dimension out of range"):
        numbers(3).sum(dim=4)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_sticky_asserts_fail_every_later_call_on_that_device(imitated, asynchronous):
    with imitated(2, asserts="sticky", asynchronous=asynchronous):
        x = numbers(3)
        with pytest.raises(torch.AcceleratorError, match="device-side assert"):
            OUTSIDE["index"]()
            torch.cuda.synchronize()
        for act in (lambda: x + 1, x.cpu, x.tolist, torch.cuda.synchronize):
            with pytest.raises(torch.AcceleratorError, match="device-side assert") as told:
                act()
            assert told.value.error_code == 710
        assert torch.ones(2, device="cuda:1").sum().item() == 2
    with imitated(1):
        assert numbers(2).sum().item() == 2


def test_a_device_that_is_not_there_has_an_error_code(gpus):
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal") as told:
        torch.ones(2, device="cuda:7")
    assert told.value.error_code == 101


def test_a_file_is_read_without_its_numbers(gpus):
    file = io.BytesIO()
    torch.save(torch.nn.Linear(2, 3, device="cuda").state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location="meta")
    assert state["weight"].is_meta and state["weight"].shape == (3, 2)


def test_a_capsule_of_a_gpu_tensor_is_refused_rather_than_one_of_the_cpu(gpus):
    with pytest.raises(NotImplementedError, match="practice GPUs do not imitate"):
        torch.utils.dlpack.to_dlpack(numbers(2))


def test_a_gpu_tensor_takes_no_storage_of_the_cpu(gpus):
    with pytest.raises(
        RuntimeError, match='storage of a tensor on device "cuda:0" to a storage on d'
    ):
        torch.ones(2, device="cuda").set_(torch.ones(3))
    with pytest.raises(
        RuntimeError, match='on device "cuda:0" to a storage on different device "cuda:1"'
    ):
        torch.ones(2, device="cuda").set_(torch.ones(3, device="cuda:1").untyped_storage())


def test_a_number_is_copied_into_a_gpu_tensor(gpus):
    assert torch.ones(2, device="cuda").copy_(float("inf")).isinf().all()


def test_storages_without_bytes_say_so(gpus):
    storage = torch.empty(3, device="meta").untyped_storage()
    assert storage.clone().device.type == "meta"
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data"):
        storage.cpu()


def test_dtypes_that_the_cpu_lacks_are_computed_in_wider_ones(gpus):
    """A model in half precision is refused though CUDA runs it, or a sum of many numbers is another."""
    x = torch.rand(1, 1, 4, 4, 4, device="cuda")
    pooled = torch.nn.functional.avg_pool3d(x.half(), 2)
    assert pooled.dtype == torch.float16 and pooled.is_cuda
    exact = torch.nn.functional.avg_pool3d(x.half().float(), 2)
    assert torch.equal(pooled, exact.half())
    counts = torch.arange(4, device="cuda").histc(4, 0, 3)
    assert counts.tolist() == [1, 1, 1, 1] and counts.dtype == torch.int64
    with pytest.raises(NotImplementedError, match="adaptive_avg_pool3d_cuda"):
        torch.nn.functional.adaptive_avg_pool3d(x.int(), 2)
