"""Where tensors are on practice GPUs, and what PyTorch says when they are not together."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._utils import _unflatten_dense_tensors

from practice_gpus import practice_gpus
from practice_gpus.pytorch import casting

pytestmark = pytest.mark.usefixtures("gpus")
CUDA0, CUDA1, CPU = torch.device("cuda:0"), torch.device("cuda:1"), torch.device("cpu")


def at(device="cuda", *shape):
    return torch.ones(*(shape or (2, 2)), device=device)


@pytest.mark.parametrize(
    "make",
    [
        lambda: at().data,
        lambda: at().t().contiguous(),
        lambda: torch.stack([at(), at()]),
        lambda: torch.einsum("ij,jk", at(), at()),
        lambda: torch.as_tensor([1, 2], device="cuda"),
        lambda: torch.empty(0).cuda(),
        lambda: F.one_hot(torch.arange(0, device="cuda"), 2),
        lambda: _unflatten_dense_tensors(at("cuda", 2), [torch.ones(2), torch.ones(0)])[1],
    ],
)
def test_on_the_first_gpu(make):
    """What situations/placement.py does not ask: joined, empty and copied tensors."""
    x = make()
    assert x.device == CUDA0 and x.is_cuda and not x.is_cpu and x.get_device() == 0


def test_moves_keep_values_and_are_copies(gpus):
    x = torch.randn(5)
    y = x.to("cuda:1")
    z = y.to("cuda:0")
    assert (y.device, z.device, z.cpu().device) == (CUDA1, CUDA0, CPU) and torch.equal(z.cpu(), x)
    assert y.to("cuda:1") is y and y.to("cuda:1", copy=True) is not y
    y.zero_()
    assert x.abs().sum() > 0 and gpus.transfers == {"h2d": 1, "d2h": 2, "d2d": 1}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_copies_count_in_every_gradient_mode(gpus, mode):
    with mode():
        x = torch.ones(3).to("cuda:0")
        y = nn.functional.linear(x, torch.eye(3, device="cuda")).softmax(0).cpu()
        with pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu"):
            x + y
        assert x.sum().item() == 3 and y.device == CPU
    assert gpus.transfers == {"h2d": 1, "d2h": 2, "d2d": 0} and gpus.synchronizations == 3


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: torch.cuda.CUDAGraph(), "CUDAGraph"),
        (lambda: at().__dlpack__(), "__dlpack__"),
        (lambda: at().__cuda_array_interface__, "__cuda_array_interface__"),
    ],
)
def test_what_cannot_be_imitated_is_refused_by_name(call, name):
    with pytest.raises(NotImplementedError, match=name):
        call()


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.Adam,
        lambda p: torch.optim.SGD(p, momentum=0.9),
        lambda p: torch.optim.Adam(p, fused=True),
    ],
)
def test_an_optimizer_whose_state_stayed_behind(make):
    model = nn.Linear(2, 2).cuda()
    optimizer = make(model.parameters())
    model(at()).sum().backward()
    optimizer.step()
    model.to("cuda:1")
    with pytest.raises(RuntimeError, match="Tensors of the same index must be on the same device"):
        optimizer.step()


@pytest.mark.parametrize(
    "layer, cudnn, method",
    [
        (nn.Conv2d(2, 2, 3), True, "_cudnn_convolution"),
        (nn.ConvTranspose2d(2, 2, 3), True, "_cudnn_convolution_transpose"),
        (nn.Conv2d(2, 2, 3, groups=2), True, "__conv_depthwise2d"),
        (nn.Conv2d(2, 2, 3), False, "__slow_conv2d_forward"),
        (nn.Conv2d(2, 2, 3, dilation=2), False, "_slow_conv_dilated2d"),
        (nn.ConvTranspose2d(2, 2, 3), False, "slow_conv_transpose2d"),
        (nn.Conv3d(2, 2, 3), False, "_slow_conv_dilated3d"),
    ],
)
def test_a_convolution_that_moved_away(layer, cudnn, method):
    x = torch.ones(4, 2, *[5] * (layer.weight.dim() - 2), device="cuda:0")
    words = rf"got weight is on cuda:1, .* method wrapper_CUDA_{method}\)"
    with torch.backends.cudnn.flags(enabled=cudnn), pytest.raises(RuntimeError, match=words):
        copy.deepcopy(layer).to("cuda:1")(x)


def test_a_bias_that_stayed_behind_meets_the_sum():
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cuda:1!"):
        F.conv2d(at("cuda:0", 4, 1, 5, 5), at("cuda:0", 2, 1, 3, 3), at("cuda:1", 2))


def test_a_refused_call_copies_nothing(gpus):
    x, y = at().requires_grad_(), at("cpu")
    lengths = torch.tensor([3, 1]).cuda("cuda:1")
    for call in (
        x.numpy,
        lambda: setattr(x, "grad", y),
        lambda: nn.RNN(2, 3).cuda()(y),
        lambda: nn.utils.rnn.pack_padded_sequence(at("cuda", 3, 2, 1), lengths),
    ):
        before = gpus.transfers["d2h"]
        with pytest.raises((RuntimeError, TypeError), match="cuda"):
            call()
        assert gpus.transfers["d2h"] == before


def test_autocast_without_its_lists_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(casting, "HEADER", tmp_path / "missing.h")
    with practice_gpus(), torch.autocast("cpu"):
        with pytest.raises(NotImplementedError, match="autocast without PyTorch's headers"):
            torch.autocast("cuda").__enter__()


@pytest.mark.parametrize(
    "write",
    [
        lambda t, c: t.add_(c),
        lambda t, c: t.mul_(c),
        lambda t, c: t.lerp_(c, 0.5),
        lambda t, c: t.addcmul_(c, c),
        lambda t, c: torch.add(c, c, out=t),
    ],
)
def test_a_number_on_the_cpu_is_read_by_a_gpu_but_not_written(write):
    with practice_gpus(1):
        number, there = torch.zeros(()), torch.ones((), device="cuda")
        assert (there + number).device == there.add_(number).device == CUDA0
        with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
            write(number, there)
        for same in (number, number.fill_(there), number.copy_(there)):
            assert same.device == CPU


def test_distances_of_many_points_name_both_devices_in_the_words_of_cdist():
    """A message that PyTorch never prints is found nowhere."""
    with practice_gpus(2):
        points = torch.rand(100, 2)
        with pytest.raises(RuntimeError, match="same device type. X1: cuda X2: cpu"):
            torch.cdist(points.cuda(), points)
        with pytest.raises(RuntimeError, match=r"device of X1 \(0\) must match device of X2 \(1\)"):
            torch.cdist(points.cuda(), points.to("cuda:1"))


def test_a_single_gradient_of_the_cpu_comes_to_the_gpu():
    """`loss.backward(torch.tensor(1.0))` trains on a GPU; it was refused here."""
    x = torch.ones(2, device="cuda", requires_grad=True)
    (x * 2).sum().backward(torch.tensor(1.0))
    assert x.grad.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="expected device cuda:0 but got cpu"):
        (x * 2).backward(torch.ones(2))
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(torch.ones(3))


def test_a_state_of_the_cpus_generator_is_none_of_a_gpus():
    """A checkpoint that mixes up the two fails on the first GPU: their states have other sizes there."""
    torch.cuda.init()  # until then states are kept for later
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        torch.cuda.set_rng_state(torch.get_rng_state())
    with pytest.raises(RuntimeError, match="but found the input RNG state size to be 16"):
        torch.set_rng_state(torch.cuda.get_rng_state())
    state = torch.cuda.get_rng_state()
    drawn = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), drawn)


@pytest.mark.parametrize("norm", [nn.LayerNorm(8), nn.GroupNorm(2, 8)])
def test_norms_take_weights_of_the_inputs_dtype(norm):
    """Halves into a norm of float32 pass on the CPU, and end the program on a GPU."""
    with pytest.raises(RuntimeError, match="expected scalar type Half but found Float"):
        norm.cuda()(at("cuda", 2, 8).half())
    with torch.autocast("cuda"):
        assert norm(at("cuda", 2, 8).half()).dtype == torch.float32


def test_a_mask_that_is_added_has_the_dtype_of_halves():
    """A mask of float32 beside a query of half precision is refused by a GPU's attention."""
    query = at("cuda", 1, 2, 4, 8).half()
    with pytest.raises(RuntimeError, match="invalid dtype for bias"):
        F.scaled_dot_product_attention(query, query, query, at("cuda", 4, 4))
    assert F.scaled_dot_product_attention(query, query, query, at("cuda", 4, 4) > 0).is_cuda


def test_numbers_are_written_where_indices_of_any_device_say():
    """The CPU has no part in `x[i] = 1`, and indices of another GPU are brought there; for reading they are not."""
    for i in (torch.tensor([0, 2]), torch.tensor([0, 2]).cuda(), torch.tensor([0, 2]).cuda(1)):
        x = torch.zeros(3, 3, device="cuda")
        x[i] = 1
        x[i[0], i[1]] = 2
        assert x.tolist() == [[1, 1, 2], [0, 0, 0], [1, 1, 1]]
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        x[i]
