"""Sparse tensors on practice GPUs: values and gradients are the CPU's, and all parts of them are on the device."""

import pytest
import torch
from torch import nn

from practice_gpus import practice_gpus

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]
CALLS = {
    "spmm": torch.spmm,
    "sparse.mm": torch.sparse.mm,
    "matmul": lambda s, w: s.t() @ w,
    "addmm": lambda s, w: torch.addmm(w, s, w),
    "sparse.addmm": lambda s, w: torch.sparse.addmm(w, s, w, beta=0.5, alpha=2),
    "mv": lambda s, w: torch.mv(s, w[:, 0]),
    "dense @ sparse": lambda s, w: w.t() @ s,
    "in place": lambda s, w: (s * 2).mul_(3) @ w,
}


@pytest.fixture(params=[False, True], ids=["at once", "asynchronous"])
def gpus(request):
    with practice_gpus(2, asynchronous=request.param) as machine:
        yield machine


def gradients(device, call):
    """The result of a call with a sparse and a dense matrix, and the gradient of the dense one."""
    s = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0], [0.0, 0.0, 4.0]])
    s = s.to(device).to_sparse()
    w = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
    out = call(s, w)
    out.square().sum().backward()
    return out, w.grad


@pytest.mark.parametrize("name", CALLS)
def test_gradients_through_sparse_products_are_the_cpus(gpus, name):
    """A graph network would end in its first backward pass, with words about a tensor left on the CPU."""
    expected = gradients("cpu", CALLS[name])
    for mine, plain in zip(gradients("cuda:1", CALLS[name]), expected, strict=True):
        assert mine.device == torch.device("cuda:1") and torch.equal(mine.cpu(), plain)


def trained(device, layer, kind):
    """The weights of an embedding with sparse gradients after three steps."""
    torch.manual_seed(0)
    table = layer(5, 3, sparse=True).to(device)
    optimizer = kind(table.parameters(), lr=0.1)
    rows = torch.tensor([1, 2, 2], device=device)
    starts = torch.tensor([0, 1], device=device)
    for _ in range(3):
        optimizer.zero_grad()
        given = (rows, starts) if layer is nn.EmbeddingBag else (rows,)
        table(*given).square().sum().backward()
        optimizer.step()
    return table.weight


@pytest.mark.parametrize("kind", [torch.optim.SparseAdam, torch.optim.Adagrad, torch.optim.SGD])
@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_learn_from_sparse_gradients(gpus, layer, kind):
    """A recommender would end in its first step."""
    weight = trained("cuda", layer, kind)
    assert weight.grad.is_sparse and weight.is_cuda
    assert torch.equal(weight.cpu(), trained("cpu", layer, kind))


def test_a_sparse_tensor_is_on_its_gpu_with_all_its_parts(gpus):
    """Its indices would be taken for a CPU tensor's, and its memory be counted too low."""
    before = torch.cuda.memory_allocated()
    s = torch.eye(1000, device="cuda").to_sparse()
    assert torch.cuda.memory_allocated() - before == 16384 + 4096  # indices and values, rounded
    assert s.indices().device == (s + s.t()).coalesce().indices().device == s.device
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        s.indices().numpy()
    assert not s.cpu().indices().is_cuda
