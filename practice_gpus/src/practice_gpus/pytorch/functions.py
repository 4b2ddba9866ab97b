"""`FunctionMode` sees every call from Python: it turns ``device=`` arguments into labels, and labels into answers.

PyTorch's own Python functions run with the mode on (see `casting.gates`), so only C functions arrive here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import _device
from torch.utils._pytree import tree_leaves, tree_map_only

from practice_gpus.machine import CPU, NO_KERNEL, contents, refusal, storage_of
from practice_gpus.pytorch import casting
from practice_gpus.pytorch.device_mismatch import (
    GOT,
    TWO,
    Mismatch,
    let_pytorch_refuse,
    refuse_sparse,
)
from practice_gpus.pytorch.operators import FAKE, fake, meta, tensors
from practice_gpus.pytorch.tensor_methods import TensorMethods
from practice_gpus.pytorch.torchscript import Devices

if TYPE_CHECKING:
    from practice_gpus.machine import Machine

T = torch.Tensor
FACTORIES = _device._device_constructors()
HALVES = {torch.float16, torch.bfloat16, torch.complex32}
TORCH = str(Path(torch.__file__).parent)
HERE = str(Path(__file__).parents[1])
asks_types = torch._C._is_torch_function_enabled
STORAGES = (torch.TypedStorage, torch.UntypedStorage)
OFFSETS = (
    "values and offsets must be on the same device, but got values.device={} and offsets.device={}"
)
POWERS = (
    "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a signal "
    "size of{}"
)
HANDED = threading.local()  # func: the operator that a user's mode has
OF_THE_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
ATTENTION = "__scaled_dot_product_efficient_attention"
OUT_TYPE = "device type {} does not match device type of out parameter ({})"
FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray, T.new_tensor)


# Their first argument, if it is a tensor, is read for a size, and the result is on the CPU.
OF_SIZES = {f for f in FACTORIES if f not in FROM_DATA and not f.__name__.endswith("_like")}


class FunctionMode(TensorMethods, TorchFunctionMode):
    """Turns devices in calls into labels, and labels into answers. A handler gets the function, then its arguments."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.on = False
        self.table = self.handlers()

    def handlers(self) -> dict:
        """Function → what is called instead."""
        names = torch._C._VariableFunctions
        functions = torch._C._nn
        table: dict[Any, Callable] = dict.fromkeys(FACTORIES, self.create)
        table |= dict.fromkeys((T.new_tensor, functions.unflatten_dense_tensors), self.create)
        for func, policy in casting.policies().items():
            table[func] = functools.partial(casting.cast, policy, self.machine)
        layers = (names.lstm, names.gru, names.rnn_tanh, names.rnn_relu)
        table |= dict.fromkeys((*layers, functions.scaled_dot_product_attention), self.fused)
        quantiles = (torch.quantile, T.quantile, torch.nanquantile, T.nanquantile)
        table |= dict.fromkeys(quantiles, self.unchecked)
        table |= dict.fromkeys((torch.tensor_split, T.tensor_split), self.split_at)
        kinds = ("coo", "csr", "csc", "bsr", "bsc", "compressed")
        sparse = [getattr(names, f"sparse_{kind}_tensor") for kind in kinds]
        table |= dict.fromkeys(sparse, self.sparse)
        table[functions.pad_sequence] = self.padded
        statistics = (torch.cov, T.cov, torch.corrcoef, T.corrcoef)
        table |= dict.fromkeys(statistics, self.followed)
        table[names._nested_view_from_jagged] = self.jagged
        table |= dict.fromkeys((OF_THE_CPU, OF_THE_CPU.default), self.of_the_cpu)
        compared = (names.meshgrid, names.stft, names.istft, names.inner, T.inner)
        table |= dict.fromkeys(compared, self.compared)
        table[names.ctc_loss] = self.ctc_loss
        table[names._pack_padded_sequence] = self.pack_padded
        table[functions.one_hot] = self.one_hot
        table[torch.dropout] = self.dropout
        table[torch.rms_norm] = self.rms_norm
        table |= dict.fromkeys([f for f in vars(torch.fft).values() if callable(f)], self.transform)
        return table | self.tensor_handlers()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if types and self.on and any(map(has_own_functions, types)) and asks_types():
            return self._of_types(func, types, args, kwargs or {})
        handler = self.table.get(func) if self.on else None
        try:
            if not kwargs:
                return func(*args) if handler is None else handler(func, *args)
            if self.on:
                if kwargs.get("out") is not None:
                    self.compare(func, args, kwargs)
                if handler is None and (
                    "device" in kwargs
                    or kwargs.get("generator") is not None
                    or kwargs.get("pin_memory")
                ):
                    handler = self.create
            return func(*args, **kwargs) if handler is None else handler(func, *args, **kwargs)
        except Mismatch as error:
            if getattr(func, "__name__", "").strip("_") != error.operator.strip("_"):
                let_pytorch_refuse(self.machine, func, *args, by_device=True, **kwargs or {})
            raise RuntimeError(str(error)) from None

    def compare(self, func: Callable, args: tuple, kwargs: dict) -> None:
        """Raise where PyTorch's C++ functions compare devices themselves, and these differ."""
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, T)]
        out = kwargs.get("out")
        if kwargs.get("device") is not None and isinstance(out, T):
            here, there = (
                self.machine.device(kwargs["device"]).type,
                (self.machine.place(out) or CPU).type,
            )
            if here != there:
                raise RuntimeError(OUT_TYPE.format(here, there))
        elif len({self.machine.place(x) for x in inputs}) > 1:
            let_pytorch_refuse(self.machine, func, *args, by_device=True, **kwargs)

    def compared(self, func: Callable, *args: Any, **kwargs: Any) -> Any:
        """A C++ function that compares the devices of its tensors."""
        self.compare(func, args, kwargs)
        return func(*args, **kwargs)

    def _of_types(self, func, types, args, kwargs):
        """What types of tensors of a user's own say themselves, with the mode on: they may ask for devices."""
        with self:
            for kind in types:
                answer = kind.__torch_function__(func, types, args, kwargs)
                if answer is not NotImplemented:
                    return answer
        raise TypeError(f"no implementation found for {func} on types {list(types)}")

    def seeing(self) -> contextlib.AbstractContextManager:
        """The mode on, for what PyTorch calls from inside of other calls."""
        if not self.on or self in _get_current_function_mode_stack():
            return contextlib.nullcontext()
        return self

    @contextlib.contextmanager
    def handing(self, func: Any) -> Iterator[None]:
        """A user's mode is handed an operator, and may call it."""
        before, HANDED.func = getattr(HANDED, "func", None), func
        try:
            yield
        finally:
            HANDED.func = before

    def around(self, hook: Callable) -> Callable:
        """``hook``, such as that for a saved tensor, with the mode on."""

        @functools.wraps(hook)
        def inside(*args):
            with self.seeing():
                return hook(*args)

        return inside

    @contextlib.contextmanager
    def toward(self, device: torch.device) -> Iterator[None]:
        """Factories put their results on ``device``."""
        local = self.machine.local
        before = local.target
        local.target = device
        try:
            yield
        finally:
            local.target = before

    def create(
        self, func: Callable, *args: Any, device: Any = None, pin_memory: Any = False, **kwargs: Any
    ) -> Any:
        """A call with ``device=`` or ``generator=``, or of a factory that follows the default device."""
        machine = self.machine
        if machine.local.tracing:
            raise Devices
        if fake(FAKE) is not None or isinstance(func, torch._ops.OpOverload) and is_passed_on():
            asked = {"device": device, "pin_memory": pin_memory}
            return func(*args, **kwargs, **{key: value for key, value in asked.items() if value})
        if func in FROM_DATA and args and isinstance(args[0], STORAGES):
            goal = machine.device(first(device, default_device(func), CPU))
            return self.move(from_storage(*args, **kwargs).clone(), goal)
        like = next((x for x in args if isinstance(x, T)), None) if func not in OF_SIZES else None
        if device is None:
            device = default_device(func)
        elif func is T.new_tensor and str(device) == "cuda":
            device = machine.place(like) or device
        goal = CPU
        if device is not None:
            goal = machine.device(device)
        elif like is not None:
            goal = machine.place(like) or CPU
        if goal.type not in ("cpu", "cuda"):
            return func(*args, device=device, **kwargs)
        check(goal, kwargs.get("generator"), pin_memory and func not in FROM_DATA)
        if like is not None and func in (torch.as_tensor, torch.asarray):
            return self.move(func(*args, **kwargs), goal)
        if device is not None:
            kwargs["device"] = CPU
        with self.toward(goal):
            out = func(*args, **kwargs)
        if goal.type == "cuda":
            for tensor in tensors(out):
                machine.put(tensor, goal)
            if func in FROM_DATA and out.numel() > 0:
                self.copied(goal, out, *args, **kwargs)
        if pin_memory and goal.type == "cpu":
            storage_of(out).practice = machine.pinned
        return out

    def sparse(
        self, func: Callable, *parts: Any, device: Any = None, **options: Any
    ) -> torch.Tensor:
        """A sparse tensor: lists of indices go where its values are, tensors only to a device that is given."""
        given = list(parts)
        count = 2 if "coo" in func.__name__ else 3  # of indices and values; sizes come behind
        data: dict[Any, Any] = dict(enumerate(given[:count]))
        data |= {key: part for key, part in options.items() if key.endswith(("indices", "values"))}
        places = {key: self.machine.place(x) for key, x in data.items() if isinstance(x, T)}
        values: Any = "values" if "values" in data else count - 1
        if device is None:
            device = places.pop(values, default_device(func))
            refuse_sparse(func.__name__, list(places.values()), device)
        goal = self.machine.device(first(device, default_device(func), CPU))
        for key, part in data.items():
            if not isinstance(part, T) and goal.type == "cuda":
                part = torch.tensor(part, dtype=None if key == values else torch.int64)
            part = self.move(part, goal) if isinstance(part, T) else part
            into: Any = given if isinstance(key, int) else options
            into[key] = part
        if goal.type == "cuda" and count == 2:  # numbers of indices are read
            sized = len(parts) > count or options.get("size") is not None
            for _ in range(2 * (not sized) + 2 * bool(options.get("check_invariants"))):
                self.machine.waits(goal, "indices")
        return self.create(func, *given, device=goal, **options)

    def copied(
        self, goal: torch.device, out: torch.Tensor, *args: Any, data: Any = None, **options: Any
    ) -> None:
        """Numbers of Python are put together on the CPU and copied, and the CPU waits for that (pytorch#120996)."""
        source = data if data is not None else args[-1]
        already_there = isinstance(source, T) and self.machine.place(source) == goal
        if not already_there:
            self.machine.copied("h2d", out, goal)
            self.machine.waits(goal, "h2d")

    def move(self, x: Any, device: torch.device, non_blocking: bool = False, **options: Any) -> Any:
        """``x`` on ``device``: itself if it is there, else a copy through which gradients flow back to its device."""
        if fake(FAKE) is not None:
            return T.to(x, device=device, non_blocking=non_blocking, **options)
        source = self.machine.place(x) or x.device
        if self.machine.local.tracing and device != self.machine.place(x):
            raise Devices
        if device == source:
            return T.to(x, **options) if options else x
        if device.type == "cuda" and source.type not in ("cpu", "cuda"):  # an Apple or Intel GPU
            x = T.to(x, CPU)
            source = CPU
        if {device.type, source.type} - {"cpu", "cuda"}:
            return T.to(x, device=device, non_blocking=non_blocking, **options)
        options = {"dtype": x.dtype} | options | {"copy": True, "non_blocking": non_blocking}
        with self.toward(device):
            y = T.to(x, CPU, **options)
        if y.layout == torch.jagged:
            self._move_offsets(y, device)
        if device.type == "cuda":
            self.machine.put(y, device)
        elif non_blocking:
            storage_of(y).practice = self.machine.pinned
        if y.grad_fn is not None:
            y.grad_fn.register_hook(functools.partial(self._return_gradients, source))
        return y

    def _move_offsets(self, y, device):
        """Offsets of a nested tensor go with its values, and stand for the same ragged size."""
        known = torch.nested._internal.nested_tensor._tensor_symint_registry
        for name in ("_offsets", "_lengths"):
            here = getattr(y, name)
            if here is not None:
                there = self.move(here, device)
                if here in known:
                    known[there] = known[here]
                setattr(y, name, there)

    def _return_gradients(self, source, inputs, outputs):
        with torch._C.DisableTorchFunction():
            return tuple(g if g is None else self.move(g, source) for g in inputs)

    def one_hot(self, func: Callable, x: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        """As PyTorch does on a GPU: without a check of the values, and with a wait only to find their largest."""
        place = self.machine.place(x)
        if place is None or x.numel() == 0 or x.dtype != torch.int64:
            return self.create(func, x, num_classes)
        if num_classes == -1:
            num_classes = int(x.max()) + 1
        if num_classes < 1:
            raise RuntimeError("num_classes should be positive")
        out = x.new_zeros((*x.shape, num_classes))
        return out.scatter_(-1, x.unsqueeze(-1), 1)

    def ctc_loss(self, func: Any, scores: Any, *args: Any, **kwargs: Any) -> Any:
        """Targets and lengths are copied to where the scores are."""
        home = self.machine.place(scores) or CPU
        args, kwargs = tree_map_only(T, lambda x: self.move(x, home), (args, kwargs))
        return casting.cast("float", self.machine, func, scores, *args, **kwargs)

    def dropout(self, func: Callable, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.machine.place(x) is None:
            return func(x, *args, **kwargs)
        return casting.dropout(func, x, *args, **kwargs)

    def rms_norm(self, func: Any, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
        """On a GPU one kernel, which keeps its input for the backward pass; the CPU keeps more, in float32."""
        if not self.machine.values and self.machine.place(x) is not None:
            func = one_kernel
        return casting.cast("float", self.machine, func, x, shape, weight, eps)

    def transform(self, func: Callable, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """A Fourier transform: in half precision the CPU computes it in float32, cuFFT takes powers of two."""
        half = isinstance(x, T) and x.dtype in HALVES and self.machine.place(x) is not None
        if not half or "shift" in func.__name__:
            return self.create(func, x, *args, **kwargs) if kwargs else func(x, *args)
        if "out" in kwargs:
            refusal("Fourier transforms in half precision with out=", instead="use float32")()
        wide = x.to(torch.complex64 if x.is_complex() else torch.float32)
        out = self.transform(func, wide, *args, **kwargs)
        if x.dtype == torch.bfloat16:
            return out
        check_powers(func.__name__, x, out, *args, **kwargs)
        return out.to(torch.complex32 if out.is_complex() else torch.float16)

    def unchecked(self, func: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The CPU's kernel looks whether its arguments make sense; a GPU's does not wait for that."""
        if self.machine.place(x) is None:
            return func(x, *args, **kwargs)
        with self.machine.quietly():
            return func(x, *args, **kwargs)

    def fused(self, func: Callable, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Attention or a recurrent layer, which compare the devices of their inputs first."""
        inputs = tensors((*args, *kwargs.values()))
        bias = next((x for x in inputs if hasattr(x, "variant")), None)
        if bias is not None:  # a CausalBias has its own code
            kind = type(bias)
            with self:
                return kind.__torch_function__(func, (kind,), args, kwargs)
        attention = func is torch._C._nn.scaled_dot_product_attention
        if attention and {self.machine.place(x) for x in inputs[:3]} == {None}:
            self.of_the_cpu(None, *inputs)
        if attention:
            self._check_mask(*args, **kwargs)
        if len({self.machine.place(x) for x in inputs}) > 1:
            let_pytorch_refuse(self.machine, func, *args, **kwargs)
        if not attention and self.machine.place(inputs[0]) and torch.backends.cudnn.enabled:
            check_hidden(*args)
        if any(self._ragged(x) for x in inputs):
            refusal("attention over jagged tensors", instead="pad them, and give a mask")()
        # The CPU has no kernel for dropout in attention, and would keep each pair of tokens.
        if not self.machine.values and attention:
            args, kwargs = fusible(*args, **kwargs)
        return casting.cast("lower", self.machine, func, *args, **kwargs)

    def _check_mask(self, query, key, value, attn_mask=None, *rest, **options):
        """A mask must be where the query is, and of its dtype if it isn't of bools."""
        home = self.machine.place(query)
        dtypes = (torch.bool, torch.float32, query.dtype)
        if home is None or attn_mask is None or attn_mask.dtype not in dtypes:
            return
        aligned = query.shape[-1] % (8 if query.dtype in HALVES else 4) == 0  # else no fused kernel
        places = [self.machine.place(x) for x in (key, value)]
        if self.machine.place(attn_mask) != home and places == [home, home]:
            there = self.machine.place(attn_mask) or "cpu"
            words = GOT.format("attn_bias", there, home, ATTENTION)
            raise RuntimeError(words if aligned else TWO.format(home, there))
        adds = query.dtype in HALVES and attn_mask.dtype == torch.float32
        if adds and aligned and query.dim() == 4 and not torch.is_autocast_enabled("cuda"):
            raise RuntimeError("invalid dtype for bias - should match query's dtype")

    def of_the_cpu(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Attention of the CPU's own, called by its name, or by PyTorch for queries on the CPU."""
        own = func is not None and func is getattr(HANDED, "func", None)
        placed = (self.machine.place(x) is not None for x in tensors((*args, *kwargs.values())))
        if not own and any(placed):
            raise NotImplementedError(NO_KERNEL.format(OF_THE_CPU.default.name(), "CUDA"))
        return func and func(*args, **kwargs)

    def followed(self, func: Any, x: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """A C++ function that makes numbers where its input is, and reads them."""
        with self.toward(self.machine.place(x) or CPU):
            return func(x, *args, **kwargs)

    def padded(self, func: Any, sequences: Any, *rest: Any, **options: Any) -> torch.Tensor:
        """Sequences are copied to where the first one is."""
        home = self.machine.place(sequences[0]) if sequences else None
        with self.toward(home or CPU):
            return func(sequences, *rest, **options)

    def jagged(self, func: Any, values: Any, offsets: Any, *rest: Any) -> Any:
        """A nested tensor, which PyTorch makes where ours does not see it look at devices."""
        places = [self.machine.place(x) or CPU for x in (values, offsets)]
        if places[0] != places[1]:
            raise AssertionError(OFFSETS.format(*places))
        return func(values, offsets, *rest)

    def _ragged(self, x):
        return x.layout == torch.jagged and self.machine.place(x._values) is not None

    def split_at(self, func: Any, x: Any, places: Any, *rest: Any, **options: Any) -> Any:
        if isinstance(places, T) and self.machine.place(places) is not None:
            let_pytorch_refuse(self.machine, lambda p: func(meta(x), p, *rest, **options), places)
        return func(x, places, *rest, **options)

    def pack_padded(
        self, func: Callable, x: torch.Tensor, lengths: torch.Tensor, *rest: Any
    ) -> Any:
        if self.machine.place(lengths) is not None:
            let_pytorch_refuse(self.machine, lambda lengths: func(meta(x), lengths, *rest), lengths)
        data, sizes = func(x, lengths, *rest)
        storage_of(sizes).practice = None  # PyTorch keeps them on the CPU
        return data, sizes


@functools.cache
def has_own_functions(kind: Any) -> bool:
    """Whether a type of tensors of a user's own says itself what functions do with it."""
    own = not kind.__module__.startswith("torch.")
    return (
        own
        and getattr(kind.__torch_function__, "__func__", None) is not T.__torch_function__.__func__
    )


def first(*values: Any) -> Any:
    """The first value that is not None: 0 is a device."""
    return next(value for value in values if value is not None)


def is_passed_on() -> Any:
    """Whether a mode for operators, of a user's or of PyTorch's, hands on what it got: then devices are the CPU's already."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if name == "__torch_dispatch__" and not file.startswith(HERE):
            return True
        if not file.startswith((HERE, TORCH)):
            return False
        frame = frame.f_back
    return False


def from_storage(storage: Any, dtype: Any = None, **options: Any) -> Any:
    """What ``torch.tensor`` makes of a storage, before it is copied."""
    kind = getattr(storage, "dtype", dtype) or torch.get_default_dtype()
    if dtype not in (None, kind):
        names = torch.storage._dtype_to_storage_type_map()
        wanted, got = (names.get(d, str(d)).removesuffix("Storage") for d in (dtype, kind))
        raise RuntimeError(
            f"Expected a Storage of type {wanted} or an UntypedStorage, but got {got}"
        )
    untyped = storage if isinstance(storage, torch.UntypedStorage) else storage.untyped()
    return contents(untyped).view(kind)


def check_powers(
    name: str,
    x: torch.Tensor,
    out: torch.Tensor,
    sizes: Any = None,
    dim: Any = None,
    *_: Any,
    **options: Any,
) -> None:
    """Raise where cuFFT has no transform of these lengths in half precision."""
    sizes = options.get("n", options.get("s", sizes))
    if dim is None:
        dim = (
            (-2, -1) if name.endswith("2") else tuple(range(x.dim())) if name.endswith("n") else -1
        )
    dims = (dim,) if isinstance(dim, int) else dim
    whole = x if "_rfft" in name or "_ihfft" in name else out
    lengths = [whole.shape[d] for d in dims]
    if whole is x and sizes is not None:
        lengths = [sizes] if isinstance(sizes, int) else list(sizes)
    if any(length & (length - 1) for length in lengths):
        raise RuntimeError(POWERS.format(lengths))


def check_hidden(*args: Any) -> None:
    """cuDNN takes states that lie in memory in order; a packed sequence's sizes come before them."""
    states = args[1] if isinstance(args[3], bool) else args[2]
    for label, state in zip(("hx", "cx"), tensors(states), strict=False):
        if not state.is_contiguous():
            raise RuntimeError(f"rnn: {label} is not contiguous")


def one_kernel(x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    """A norm of one kernel, which keeps as much as a GPU's `rms_norm` does."""
    return torch.native_layer_norm(x, shape, weight, None, eps or 0.0)[0]


def fusible(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    *rest: Any,
    **options: Any,
) -> tuple:
    """The arguments of an attention that a GPU computes in one kernel, as the CPU's fused kernel wants them too: no
    dropout, a mask of two or four dimensions."""
    if attn_mask is not None and not torch.is_grad_enabled():
        attn_mask = attn_mask.detach()
    if attn_mask is not None and attn_mask.dim() == 3:
        attn_mask = attn_mask.unsqueeze(0)
    return (query, key, value, attn_mask, 0.0, *rest), options


def default_device(func: Callable) -> Any:
    """The device that ``torch.set_default_device`` or ``with torch.device(…)`` gives to a factory in this thread."""
    if _device.CURRENT_DEVICE is not None and func in FACTORIES:
        modes = _get_current_function_mode_stack()
        return next(
            (mode.device for mode in modes if isinstance(mode, _device.DeviceContext)), None
        )


def check(device: torch.device, generator: Any, pin: bool) -> None:
    """Refuse, as PyTorch does, a generator of another device, and pinned memory on a GPU."""
    if generator is not None and generator.device.type != device.type:
        raise RuntimeError(
            f"Expected a '{device.type}' device type for generator but found '{generator.device.type}'"
        )
    if pin and device.type == "cuda":
        raise RuntimeError("Only dense CPU tensors can be pinned")
