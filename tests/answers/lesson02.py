"""Wrong answers to the exercises of lesson 02."""

import torch

from helpers.checks.core import Wrong


def _mover(
    tensor=torch.Tensor.to,
    other=lambda value, device: value,
    some=lambda kept, parts: type(kept)(parts),
    keep=lambda kept, parts: parts,
):
    """A move_batch with one slip: how a tensor, anything else, a sequence or a dict is treated."""

    def move(batch, device):
        if isinstance(batch, torch.Tensor):
            return tensor(batch, device)
        if isinstance(batch, dict):
            return keep(batch, {key: move(value, device) for key, value in batch.items()})
        if isinstance(batch, (list, tuple)):
            return some(batch, [move(part, device) for part in batch])
        return other(batch, device)

    return move


def _move_flat(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_flat(value, device) for key, value in batch.items()}
    return batch


def _forget(tensor, device):
    tensor.to(device)
    return tensor


def _variant(
    move=lambda x, w: x.to(w.device),
    bias=lambda w: w.new_ones(w.shape[1]),
    back=lambda p: p.detach().cpu().numpy(),
):
    """A `repaired` with one slip: how x moves, how bias is made, or how the result comes back."""
    return lambda x, weight: back((move(x, weight) @ weight + bias(weight)).sigmoid())


def _on_cpu(x, weight):
    return (x.cpu() @ weight.cpu() + torch.ones(weight.shape[1])).sigmoid().detach().numpy()


WRONG = {
    "batch": (
        Wrong(_mover(tensor=_forget), "a tensor: the tensor is on cpu"),
        Wrong(_move_flat, "a tuple[0]: the tensor is on cpu"),
        Wrong(_mover(keep=lambda kept, parts: kept.update(parts) or kept), "build a new container"),
        Wrong(_mover(some=lambda kept, parts: parts), "expected tuple"),
        Wrong(_mover(other=lambda value, device: value.to(device)), "AttributeError: 'str'"),
        Wrong(_mover(other=lambda value, device: None), "Does every path return"),
        Wrong(_mover(tensor=lambda tensor, device: tensor.cuda()), "the device you were given"),
    ),
    "repair": (
        Wrong(_variant(move=lambda x, w: x), "but got"),
        Wrong(_variant(bias=lambda w: torch.ones(w.shape[1])), "at least two devices"),
        Wrong(_variant(back=lambda p: p.detach().numpy()), "can't convert"),
        Wrong(_variant(back=lambda p: p.cpu().numpy()), "requires grad"),
        Wrong(_variant(bias=lambda w: 0), "Keep bias"),
        Wrong(_on_cpu, "the work ran on the CPU"),
        Wrong(_variant(bias=lambda w: torch.ones(w.shape[1]).to(w.device)), "one each is enough"),
        Wrong(_variant(back=lambda p: p), "expected a NumPy array"),
    ),
    "pays": (
        Wrong({"A": "GPU", "B": "GPU", "C": "GPU", "D": "GPU"}, "2,048 calls"),
        Wrong({"A": "CPU", "B": "CPU", "C": "GPU", "D": "CPU"}, "34 MB travel"),
        Wrong({"A": "GPU", "B": "CPU", "C": "CPU", "D": "CPU"}, "2,048 rows to do"),
        Wrong({"A": "GPU", "B": "CPU", "C": "GPU", "D": "GPU"}, "this one call"),
        Wrong({"A": "GPU"}, "no answer for"),
        Wrong({"A": "GPU", "B": 1, "C": "GPU", "D": "CPU"}, "none of the answers"),
    ),
}
