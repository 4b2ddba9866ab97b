"""Optimizers, gradient utilities, recurrent layers and checkpointing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, rnn
from torch.utils.checkpoint import checkpoint

from practice_gpus.situations.gradients import leaf
from practice_gpus.situations.mismatch import square
from practice_gpus.situations.modules import net
from practice_gpus.situations.placement import devices, on
from practice_gpus.situations.registry import CODE, DOCS, situation, table

OPTIM = DOCS + "optim.html"
RNN = CODE + "torch/nn/modules/rnn.py and aten/src/ATen/native/RNN.h"


@situation(OPTIM)
def optimizer_made_before_the_move_still_works() -> Any:
    m = nn.Linear(1, 1, bias=False)
    nn.init.constant_(m.weight, 1.0)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.5)
    m.to("cuda")
    m(torch.ones(1, 1, device="cuda")).sum().backward()
    optimizer.step()
    return m.weight


def state_after_a_step(make: Any) -> dict:
    """Return where each tensor of an optimizer's state is after one step."""
    x = leaf()
    optimizer = make([x])
    x.sum().backward()
    optimizer.step()
    state = optimizer.state[x].items()
    return {name: str(value.device) for name, value in state if torch.is_tensor(value)}


STATES = {
    "state of Adam": lambda p: torch.optim.Adam(p),
    "state of AdamW with amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "state of fused Adam": lambda p: torch.optim.Adam(p, fused=True),
    "state of capturable Adam": lambda p: torch.optim.Adam(p, capturable=True),
    "state of SGD with momentum": lambda p: torch.optim.SGD(p, lr=1, momentum=0.9),
    "state of Adagrad": lambda p: torch.optim.Adagrad(p),
}
table(OPTIM + " and " + CODE + "torch/optim/adam.py", STATES, through=state_after_a_step)


@situation(OPTIM)
def one_step_of_sgd() -> Any:
    x = leaf()
    optimizer = torch.optim.SGD([x], lr=0.5)
    (x * x).sum().backward()
    optimizer.step()
    return x


@situation(CODE + "torch/optim/optimizer.py")
def optimizer_state_loads_to_the_device() -> Any:
    x, y = leaf("cpu"), leaf()
    saved = torch.optim.Adam([x])
    x.sum().backward()
    saved.step()
    loaded = torch.optim.Adam([y])
    loaded.load_state_dict(saved.state_dict())
    return loaded.state[y]["exp_avg"].device, loaded.state[y]["step"].device


@situation(OPTIM, gpus=2)
def one_optimizer_for_two_gpus() -> Any:
    x, y = leaf("cuda:0"), leaf("cuda:1")
    optimizer = torch.optim.Adam([x, y])
    (x.sum() + y.to("cuda:0").sum()).backward()
    optimizer.step()
    return optimizer.state[x]["exp_avg"].device, optimizer.state[y]["exp_avg"].device


@situation(DOCS + "generated/torch.optim.lr_scheduler.LambdaLR.html")
def scheduler_with_parameters_on_the_device() -> Any:
    optimizer = torch.optim.SGD([leaf()], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    scheduler.step()
    return optimizer.param_groups[0]["lr"]


@situation(DOCS + "generated/torch.nn.utils.clip_grad_norm_.html")
def clip_grad_norm_on_the_device() -> Any:
    x = leaf()
    x.grad = on("cuda", 3, 4)
    total = nn.utils.clip_grad_norm_([x], 1.0)
    return total.item(), total.device, x.grad.device


@situation(CODE + "torch/nn/utils/clip_grad.py", gpus=2)
def clip_grad_norm_over_two_gpus() -> Any:
    x, y = leaf("cuda:0"), leaf("cuda:1")
    x.grad, y.grad = on("cuda:0", 3, 0), on("cuda:1", 0, 4)
    return nn.utils.clip_grad_norm_([x, y], 10.0), y.grad.device


def packed(device: Any, lengths: Any) -> rnn.PackedSequence:
    """Return two sequences on `device`, packed."""
    return rnn.pack_padded_sequence(torch.ones(3, 2, 1, device=device), lengths)


UTILITIES = {
    "parameters_to_vector": lambda: parameters_to_vector(net().to("cuda").parameters()).device,
    "parameters_to_vector of two devices": lambda: parameters_to_vector([on(), torch.ones(1)]),
    "weight_norm": lambda: (
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)).to("cuda")(square("cuda")).device
    ),
    "pad_sequence": lambda: rnn.pad_sequence([on(), on()[:1]]).device,
    "pack_padded_sequence": lambda: packed("cuda", [3, 1]).data.device,
    "batch sizes of a packed sequence": lambda: packed("cuda", [3, 1]).batch_sizes.device,
    "packed sequence to the device": lambda: (
        packed("cpu", [3, 1]).to("cuda").data.device,
        packed("cpu", [3, 1]).to("cuda").is_cuda,
    ),
    "pack_padded_sequence with lengths on the device": lambda: packed(
        "cuda", torch.tensor([3, 1], device="cuda")
    ),
}
table(DOCS + "nn.html#utilities", UTILITIES)


def ones(*shape: Any) -> torch.Tensor:
    """Return ones on the device."""
    return torch.ones(*shape, device="cuda")


@situation(RNN)
def outputs_of_an_LSTM() -> Any:
    out, state = nn.LSTM(2, 3).to("cuda")(ones(4, 1, 2))
    return devices([out, *state])


LAYERS = {
    "GRU with its own start": lambda: (
        nn.GRU(2, 3).to("cuda")(ones(4, 1, 2), ones(1, 1, 3))[0].device
    ),
    "LSTM on GPU, input on CPU": lambda: nn.LSTM(2, 3).to("cuda")(torch.ones(4, 1, 2)),
    "RNN on GPU, start on CPU": lambda: nn.RNN(2, 3).to("cuda")(
        ones(4, 1, 2), torch.zeros(1, 1, 3)
    ),
    "LSTM on CPU, input on GPU": lambda: nn.LSTM(2, 3)(ones(4, 1, 2)),
    "attention layer": lambda: devices(
        nn.MultiheadAttention(4, 2).to("cuda")(*[ones(2, 1, 4)] * 3)
    ),
    "transformer layer": lambda: (
        nn.TransformerEncoderLayer(4, 2, 8).to("cuda")(ones(2, 1, 4)).device
    ),
}
table(RNN, LAYERS)


@situation(DOCS + "checkpoint.html")
def checkpoint_gives_the_gradient() -> Any:
    x = leaf()
    checkpoint(lambda t: (t * t).sum(), x, use_reentrant=False).backward()
    return x.grad


@situation(DOCS + "checkpoint.html")
def checkpoint_repeats_its_dropout() -> Any:
    x = torch.ones(1000, device="cuda", requires_grad=True)
    y = checkpoint(nn.functional.dropout, x, use_reentrant=False)
    y.sum().backward()
    return torch.equal(x.grad, y.detach())


@situation(DOCS + "generated/torch.nn.BatchNorm1d.html")
def running_statistics_on_the_device() -> Any:
    m = nn.BatchNorm1d(1).to("cuda")
    m(torch.tensor([[1.0], [3.0]], device="cuda"))
    return m.running_mean.device, m.num_batches_tracked.item(), m.num_batches_tracked.device


@situation(DOCS + "generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook")
def forward_hook_sees_the_device() -> Any:
    seen = []
    m = nn.Linear(2, 2).to("cuda")
    m.register_forward_hook(lambda module, args, out: seen.append((args[0].device, out.device)))
    m(square("cuda"))
    return seen


@situation(DOCS + "notes/cuda.html")
def losses_equal_those_of_the_cpu() -> Any:
    data, target = torch.randn(8, 2), torch.randint(2, (8,))
    losses = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(1)
        m = net().to(device)
        optimizer = torch.optim.Adam(m.parameters())
        for _ in range(3):
            loss = nn.functional.cross_entropy(m(data.to(device)), target.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return abs(losses[0] - losses[1]) < 1e-4
