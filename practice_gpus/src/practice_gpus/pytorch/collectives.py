"""Process groups on practice GPUs: gloo serves NCCL, and each group the kinds of devices that its backend's name stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from practice_gpus.machine import NO_BACKEND, tell_refused
from practice_gpus.pytorch import dtensors
from practice_gpus.pytorch.operators import tensors

if TYPE_CHECKING:
    from practice_gpus.machine import Machine
    from practice_gpus.pytorch.operators import Call

NCCL = ("nccl", "nccl2", "nccl_lazy")


def patches(machine: Machine) -> Iterator[Any]:
    """(module or class, name, replacement) for what makes process groups."""
    if not torch.distributed.is_available():
        return
    c10d = torch.distributed.distributed_c10d
    served: dict[str, set] = machine.served
    device_types = c10d.ProcessGroup._device_types.__get__

    def listed(group):
        wanted = served.get(group.group_name)
        return [d for d in device_types(group) if wanted is None or d.type in wanted]

    yield c10d, "_new_process_group_helper", made(c10d, served, c10d._new_process_group_helper)
    yield c10d.ProcessGroup, "_device_types", property(listed)
    work = torch._C._distributed_c10d.Work
    yield work, "wait", waited(machine, work.wait)
    name = "_broadcast_coalesced"
    yield torch.distributed, name, by_device(machine, getattr(torch.distributed, name))
    yield torch.distributed, "Reducer", reducer_class(machine, torch.distributed.Reducer)
    mesh = torch.distributed.device_mesh.DeviceMesh
    yield mesh, "__init__", dtensors.meshed(mesh.__init__)
    for module in (torch.distributed, c10d):
        yield module, "is_nccl_available", lambda: True
        if not hasattr(c10d, "ProcessGroupNCCL"):  # a build without it
            yield module, "ProcessGroupNCCL", type("ProcessGroupNCCL", (), {"Options": Options})


class Options(SimpleNamespace):
    """``ProcessGroupNCCL.Options`` for a build that has none."""


def made(c10d: Any, served: dict, original: Callable) -> Callable:
    """What makes a group: its tensors are the CPU's, whatever their labels, so gloo gets those, too."""

    def make(size, rank, ranks, backend, *rest, device_id=None, backend_options=None, **options):
        config = c10d.BackendConfig(backend)
        wanted = config.get_device_backend_map()
        stand_ins = {kind: "gloo" if name in NCCL else name for kind, name in wanted.items()}
        if stand_ins == wanted and "cpu" in wanted:
            options |= {"device_id": device_id, "backend_options": backend_options}
            stand_ins = backend
        else:
            stand_ins = {"cpu": "gloo"} | stand_ins
            stand_ins = c10d.Backend(",".join(f"{k}:{name}" for k, name in stand_ins.items()))
        if stand_ins != backend:
            label = "new_group" if ranks else "init_process_group"
            tell_refused(f"torch.distributed.{label} with nccl (gloo instead)")
        group, store = original(size, rank, ranks, stand_ins, *rest, **options)
        if isinstance(group, c10d.ProcessGroup):
            served[group.group_name] = set(wanted)
            c10d._world.pg_map[group] = (backend, store)
            c10d._world.pg_backend_config[group] = str(config)
        return group, store

    return make


def by_device(machine: Machine, original: Callable) -> Callable:
    """What DDP sends to all ranks in buckets: the tensors of each device in buckets of their own."""

    def send(group, tensors, *rest):
        with torch._C.DisableTorchFunction():
            homes = [machine.place(tensor) for tensor in tensors]
        for home in dict.fromkeys(homes):
            own = [tensor for tensor, at in zip(tensors, homes, strict=True) if at == home]
            original(group, own, *rest)

    return send


def reducer_class(machine: Machine, original: Any) -> type:
    """What reduces DDP's gradients: those of a module on several devices each in a bucket of their own."""

    class Reducer(original):
        def __init__(self, parameters, buckets, limits, group, sparse, cap, *rest):
            count = len(parameters)
            if len({machine.place(parameter) for parameter in parameters}) > 1:
                buckets, limits, cap = [[n] for n in reversed(range(count))], [1] * count, 1
                rest = (*rest[:3], cap, *rest[4:])  # the first bucket's, too, when they are rebuilt
            super().__init__(parameters, buckets, limits, group, sparse, cap, *rest)

    return Reducer


def waited(machine: Machine, original: Callable) -> Callable:
    """``Work.wait``, in which gloo copies from a tensor of its own that is on no GPU; NCCL writes where it should be."""

    def wait(work, *args, **kwargs):
        machine.local.arriving = True
        try:
            return original(work, *args, **kwargs)
        finally:
            machine.local.arriving = False

    return wait


def check(machine: Machine, call: Call) -> None:
    """Refuse tensors of a kind of device that the group of a collective does not serve, as PyTorch does."""
    group = name = None
    for position, value in enumerate(call.args):
        kind = value._type().name() if isinstance(value, torch.ScriptObject) else ""
        if kind == "ProcessGroup":
            group = torch.distributed.ProcessGroup.unbox(value).group_name
        elif kind == "ReduceOp":
            premultiply(call, position)
        elif isinstance(value, str):
            name = value  # of a functional collective, its group's name last
    served = machine.served.get(group or name or "")
    kind = "cuda" if any(call.homes) else "cpu"
    if served is not None and call.homes and kind not in served and call.fact.name != "barrier":
        raise RuntimeError(NO_BACKEND.format(kind))


def premultiply(call: Call, position: int) -> None:
    """A sum of multiples, which NCCL has and gloo has not, made of multiples first."""
    kind = torch.distributed.ReduceOp
    reduction = kind.unbox(call.args[position])
    if reduction.op != kind.PREMUL_SUM:
        return
    source = 1 if "scatter" in call.fact.name else 0
    scale = reduction.factor
    args = list(call.args)
    args[position] = kind(kind.SUM).boxed()
    if source:
        args[source] = tree_map_only(torch.Tensor, lambda t: t * scale, args[source])
    else:
        tree_map_only(torch.Tensor, lambda t: t.mul_(scale), args[source])
    call.args = tuple(args)


def averages(call: Call) -> Callable | None:
    """What makes a mean of integers, which NCCL has and gloo has not, of their sum's result; None for other calls."""
    boxes = {
        v._type().name(): n for n, v in enumerate(call.args) if isinstance(v, torch.ScriptObject)
    }
    place, kind = boxes.get("ReduceOp"), torch.distributed.ReduceOp
    targets = tensors(call.args[0])
    integers = targets and not (targets[0].is_floating_point() or targets[0].is_complex())
    if place is None or not integers or "allreduce" not in call.fact.name:
        return None
    if kind.unbox(call.args[place]).op != kind.AVG:
        return None
    count = torch.distributed.ProcessGroup.unbox(call.args[boxes["ProcessGroup"]]).size()
    call.args = (*call.args[:place], kind(kind.SUM).boxed(), *call.args[place + 1 :])

    def divided(out):
        torch.distributed.Work.unbox(out[1]).wait()
        for target in targets:
            torch.div(target, count, rounding_mode="trunc", out=target)
        return out

    return divided
