"""Where tensors are on practice GPUs, and what PyTorch says when they are not together."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from practice_gpus import casting, practice_gpus

CUDA0, CUDA1, CPU = torch.device("cuda:0"), torch.device("cuda:1"), torch.device("cpu")


@pytest.fixture(autouse=True)
def gpus(imitated):
    with imitated(n=2) as machine:
        yield machine


def at(device="cuda", *shape):
    return torch.ones(*(shape or (2, 2)), device=device)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, device="cuda"),
        lambda: torch.tensor([1], device="cuda:0"),
        lambda: torch.ones(2).cuda(),
        lambda: torch.ones(2).to("cuda"),
        lambda: torch.ones(2).to(0),
        lambda: torch.ones(2).to(at()),
        lambda: torch.arange(3, device=0),
        lambda: torch.rand_like(at()),
        lambda: at().new_zeros(2),
        lambda: at().new_tensor([1.0]),
        lambda: at()[0],
        lambda: at().t().contiguous(),
        lambda: at() + 1,
        lambda: at() * torch.tensor(2.0),
        lambda: at().detach(),
        lambda: at().data,
        lambda: torch.stack([at(), at()]),
        lambda: at()[torch.tensor([0])],
        lambda: at().clone().add_(1),
        lambda: copy.deepcopy(at()),
        lambda: pickle.loads(pickle.dumps(at())),
        lambda: torch.as_tensor([1, 2], device="cuda"),
        lambda: F.one_hot(torch.arange(2, device="cuda")),
        lambda: F.one_hot(torch.arange(0, device="cuda"), 2),
        lambda: torch._utils._unflatten_dense_tensors(
            at("cuda", 2), [torch.ones(2), torch.ones(0)]
        )[1],
        lambda: torch.empty(0).cuda(),
        lambda: torch.empty(2).type("torch.cuda.FloatTensor"),
        lambda: torch.Generator("cuda") and torch.randperm(3, device="cuda"),
        lambda: at().half().float(),
        lambda: nn.MultiheadAttention(4, 2, device="cuda")(*[at("cuda", 3, 1, 4)] * 3)[0],
        lambda: nn.LSTM(4, 3, device="cuda")(at("cuda", 3, 1, 4))[0],
        lambda: torch.einsum("ij,jk", at(), at()),
    ],
)
def test_on_the_first_gpu(make):
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


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: at() + at("cpu"), "found at least two devices, cuda:0 and cpu!"),
        (lambda: at() + at("cuda:1"), "found at least two devices, cuda:0 and cuda:1!"),
        (
            lambda: at() @ at("cpu"),
            "got mat2 is on cpu, different from other tensors on cuda:0 (when checking argument in "
            "method wrapper_CUDA_mm)",
        ),
        (
            lambda: F.linear(at("cpu"), at(), at("cuda", 2)),
            "got mat1 is on cpu, different from other tensors on cuda:0 (when checking argument in method "
            "wrapper_CUDA_addmm)",
        ),
        (
            lambda: at("cpu")[at().long()],
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
        ),
        (
            lambda: F.conv2d(at("cuda", 2, 1, 4, 4), at("cpu", 1, 1, 2, 2)),
            "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
        ),
        (
            lambda: F.cross_entropy(at(), torch.tensor([0, 1])),
            "got target is on cpu, different from other tensors on cuda:0",
        ),
        (lambda: torch.ones(1, device="cuda:2"), "CUDA error: invalid device ordinal"),
        (
            lambda: torch.randn(1, device="cuda", generator=torch.Generator()),
            "Expected a 'cuda' device type for generator",
        ),
        (
            lambda: setattr(nn.Parameter(at()), "grad", at("cpu")),
            "attempting to assign a gradient with device type 'cpu'",
        ),
    ],
)
def test_refused_in_pytorchs_words(call, words):
    with pytest.raises(RuntimeError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_copies_count_in_every_gradient_mode(gpus, mode):
    with mode():
        x = torch.ones(3).to("cuda:0")
        y = nn.functional.linear(x, torch.eye(3, device="cuda")).softmax(0).cpu()
        with pytest.raises(RuntimeError, match="two devices, cuda:0 and cpu"):
            x + y
        assert x.sum().item() == 3 and y.device == CPU
    assert gpus.transfers == {"h2d": 1, "d2h": 2, "d2d": 0} and gpus.synchronizations == 3


def test_numpy_needs_the_cpu():
    for call in (lambda: at().numpy(), lambda: np.asarray(at())):
        with pytest.raises(
            TypeError, match="can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"
        ):
            call()
    assert at().cpu().numpy().sum() == 4


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: torch.cuda.CUDAGraph(), "CUDAGraph"),
        (lambda: torch.distributed.init_process_group("nccl"), "nccl"),
        (lambda: at().__dlpack__(), "__dlpack__"),
        (lambda: at().__cuda_array_interface__, "__cuda_array_interface__"),
    ],
)
def test_what_cannot_be_imitated_is_refused_by_name(call, name):
    with pytest.raises(NotImplementedError, match=name):
        call()


def test_fake_tensors_of_the_cpu_pass_and_those_of_a_gpu_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        y = nn.Linear(2, 3)(torch.ones(4, 2))
        y.sum().backward()
        assert y.device == CPU and tuple(y.shape) == (4, 3)
        for call in (
            lambda: torch.ones(2, device="cuda"),
            lambda: torch.ones(2).to("cuda"),
            lambda: y.cuda(),
        ):
            with pytest.raises(NotImplementedError, match="under FakeTensorMode"):
                call()
    assert at().is_cuda


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
    "layer, cudnn, words",
    [
        (
            nn.Conv2d(2, 2, 3),
            True,
            "got weight is on cuda:1, .* method wrapper_CUDA__cudnn_convolution",
        ),
        (nn.ConvTranspose2d(2, 2, 3), True, "method wrapper_CUDA__cudnn_convolution_transpose"),
        (nn.Conv2d(2, 2, 3, groups=2), True, "method wrapper_CUDA___conv_depthwise2d"),
        (nn.Conv2d(2, 2, 3), False, "method wrapper_CUDA___slow_conv2d_forward"),
        (nn.Conv2d(2, 2, 3, dilation=2), False, "method wrapper_CUDA__slow_conv_dilated2d"),
        (nn.ConvTranspose2d(2, 2, 3), False, "method wrapper_CUDA_slow_conv_transpose2d"),
        (nn.Conv3d(2, 2, 3), False, "method wrapper_CUDA__slow_conv_dilated3d"),
    ],
)
def test_a_convolution_that_moved_away(layer, cudnn, words):
    x = torch.ones(4, 2, *[5] * (layer.weight.dim() - 2), device="cuda:0")
    with (
        torch.backends.cudnn.flags(enabled=cudnn),
        pytest.raises(RuntimeError, match=words + r"\)"),
    ):
        copy.deepcopy(layer).to("cuda:1")(x)


def test_a_bias_that_stayed_behind_meets_the_sum():
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cuda:1!"):
        F.conv2d(at("cuda:0", 4, 1, 5, 5), at("cuda:0", 2, 1, 3, 3), at("cuda:1", 2))


def test_a_refused_call_copies_nothing(gpus):
    x, y = at().requires_grad_(), at("cpu")
    for call in (
        x.numpy,
        lambda: setattr(x, "grad", y),
        lambda: nn.RNN(2, 3).cuda()(y),
        lambda: nn.utils.rnn.pack_padded_sequence(
            at("cuda", 3, 2, 1), torch.tensor([3, 1]).cuda("cuda:1")
        ),
    ):
        before = gpus.transfers["d2h"]
        with pytest.raises((RuntimeError, TypeError), match="cuda"):
            call()
        assert gpus.transfers["d2h"] == before


def test_autocast_without_its_lists_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(casting, "HEADER", tmp_path / "missing.h")
    with practice_gpus(), torch.autocast("cpu"):
        with (
            pytest.raises(NotImplementedError, match="autocast without PyTorch's headers"),
            torch.autocast("cuda"),
        ):
            pass


def test_default_devices():
    with torch.device("cuda:1"):
        assert torch.ones(2).device == CUDA1 == nn.Linear(2, 2).weight.device
    with torch.cuda.device(1):
        assert at().device == CUDA1 and torch.cuda.current_device() == 1
    torch.set_default_device("cuda")
    assert torch.ones(2).device == CUDA0
    torch.set_default_device(None)
    assert torch.ones(2).device == CPU


def test_a_module_moves_in_place_and_gradients_follow():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = list(model.parameters())
    model.to("cuda:1")(at("cuda:1")).sum().backward()
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert {p.device for p in model.parameters()} | {b.device for b in model.buffers()} == {CUDA1}
    assert {p.grad.device for p in model.parameters()} == {CUDA1}


def test_gradient_returns_to_the_device_it_came_from():
    x = torch.ones(2, requires_grad=True)
    (x.to("cuda:0") * 2).to("cuda:1").sum().backward()
    assert x.grad.device == CPU and x.grad.tolist() == [2, 2]


def test_saving_keeps_the_device_and_map_location_changes_it():
    file = io.BytesIO()
    torch.save({"x": at("cuda:1")}, file)
    places = []
    for options in (
        {},
        {"map_location": "cpu"},
        {"map_location": "cuda:0"},
        {"map_location": {"cuda:1": "cuda:0"}},
    ):
        file.seek(0)
        places.append(torch.load(file, **options)["x"].device)
    assert places == [CUDA1, CPU, CUDA0, CUDA0]


def test_autocast_computes_in_half_where_cuda_does():
    model, x = nn.Linear(4, 4).cuda(), at("cuda", 2, 4)
    with torch.autocast("cuda", dtype=torch.float16):
        y = model(x)
        assert (y.dtype, y.softmax(1).dtype, F.mse_loss(y, y).dtype, (y + x).dtype) == (
            torch.float16,
            torch.float32,
            torch.float32,
            torch.float32,
        )
        assert model.cpu()(x.cpu()).dtype == torch.float32
    assert model.cuda()(x).dtype == torch.float32


def test_data_parallel_splits_and_sums():
    torch.manual_seed(0)
    seen, model, x = [], nn.Linear(3, 2), torch.randn(6, 3)
    expected = model(x)
    expected.sum().backward()
    wanted, model.weight.grad, model.bias.grad = model.weight.grad.clone(), None, None
    model.cuda()
    model.register_forward_hook(
        lambda module, inputs, output: seen.append((inputs[0].device, len(inputs[0])))
    )
    y = nn.DataParallel(model)(x)
    y.sum().backward()
    assert sorted(seen, key=str) == [(CUDA0, 3), (CUDA1, 3)] and y.device == CUDA0
    assert torch.allclose(y.cpu(), expected) and torch.allclose(model.weight.grad.cpu(), wanted)


def test_index_out_of_range_is_a_device_assert():
    with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):
        F.embedding(torch.tensor([9], device="cuda"), at())


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
        assert (there + number).device == there.add_(number).device == torch.device("cuda:0")
        with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
            write(number, there)
        assert (
            number.device.type
            == number.fill_(there).device.type
            == number.copy_(there).device.type
            == "cpu"
        )
