"""Exercises and quiz of lesson 02, Move tensors. Checks run on two GPUs, real ones or practice GPUs."""

import copy
import random
from collections import namedtuple
from contextlib import contextmanager

import numpy
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.checks.core import Exercise, NotYet, Question, Wrong, call
from practice_gpus import practice_gpus

CPU = torch.device("cpu")
GPUS = (torch.device("cuda:0"), torch.device("cuda:1"))


class _Crossings(TorchDispatchMode):
    """Counts copies to a GPU ("h2d"), from one ("d2h") and between two ("d2d"), where the GPUs are real."""

    def __init__(self):
        super().__init__()
        self.transfers = {"h2d": 0, "d2h": 0, "d2d": 0}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out, name = func(*args, **(kwargs or {})), func._schema.name
        if name in ("aten::copy_", "aten::_to_copy"):
            ends = (args[1] if name == "aten::copy_" else args[0]).device, out.device
            if ends[0] != ends[1]:
                self.transfers["2".join("h" if end == CPU else "d" for end in ends)] += 1
        return out


@contextmanager
def _counted(gpus):
    """Yields a dict that holds the copies of the block, by direction, once the block has ended."""
    found = {}
    if gpus.real:
        with _Crossings() as seen:
            yield found
        found.update(seen.transfers)
    else:
        before = gpus.transfers
        yield found
        found.update({way: gpus.transfers[way] - before[way] for way in before})


# --- predict `is` ----------------------------------------------------------------------------------------------------
SAME = {
    'y.to("cuda:0") is y': True,
    "y.to(torch.float64) is y": False,
    'y.to("cuda:0", copy=True) is y': False,
    "y.cpu().cuda() is y": False,
    'model.to("cuda:0") is model': True,
    "model.weight is weight": True,
}
_WHY_SAME = {
    'y.to("cuda:0") is y': "Is anything left to do, when y is there already?",
    "y.to(torch.float64) is y": "Eight bytes an element do not fit where four were.",
    'y.to("cuda:0", copy=True) is y': "copy=True asks for a copy even when nothing changes.",
    "y.cpu().cuda() is y": "y went to the CPU as a copy, and that copy came back as another one.",
    'model.to("cuda:0") is model': "A module's .to works in place and returns the module.",
    "model.weight is weight": "A module keeps its parameter objects and gives them new data.",
}


def _check_same(answer):
    if not isinstance(answer, dict) or set(answer) != set(SAME):
        raise NotYet(
            f"expected a dict with the {len(SAME)} lines of the starter as keys, got {answer!r}."
        )
    with practice_gpus(2):
        y, model = torch.ones(2, device="cuda:0"), nn.Linear(2, 2)
        names = {"torch": torch, "y": y, "model": model, "weight": model.weight}
        truth = {line: eval(line, names) for line in SAME}  # our own lines, not the learner's
    for line, said in answer.items():
        if not isinstance(said, (bool, numpy.bool_)):
            raise NotYet(f"{line}: {said!r} is neither True nor False.")
    wrong = [line for line, said in answer.items() if bool(said) != truth[line]]
    if wrong:
        right = len(SAME) - len(wrong)
        raise NotYet(
            f"{right} of {len(SAME)} agree with PyTorch. Look again at {wrong[0]}. {_WHY_SAME[wrong[0]]}"
        )
    return "six of six; the check asked PyTorch itself."


same = Exercise(
    key="02.same",
    title="predict `is`",
    minutes=3,
    lines=1,
    difficulty=1,
    check_answer=_check_same,
    hints=(
        "Ask of each line: is there anything to do? A tensor's .to that has nothing to do returns the tensor.",
        "A copy is never the original, even when it comes back. Modules are not tensors: they change in place.",
    ),
    reference=SAME,
    source="same = " + repr(SAME),
    explanation="A tensor's .to returns the tensor itself exactly when device and dtype are right and no copy was "
    "asked for. A module's .to moves the data of its parameters and returns the same module.",
    wrong=(
        Wrong({**SAME, "model.weight is weight": False}, "keeps its parameter objects"),
        Wrong({**SAME, "y.cpu().cuda() is y": True}, "came back as another"),
        Wrong({**SAME, 'y.to("cuda:0", copy=True) is y': True}, "even when nothing changes"),
        Wrong({**SAME, 'y.to("cuda:0") is y': False}, "left to do"),
        Wrong({**SAME, 'model.to("cuda:0") is model': "yes"}, "neither True nor False"),
        Wrong([True] * 6, "expected a dict"),
    ),
)


# --- a hidden state --------------------------------------------------------------------------------------------------
def first_state(x, size):
    return x.new_zeros(x.shape[0], size)


@contextmanager
def _visible_garbage():
    """Fresh memory holds NaN, so that `empty` never passes for `zeros` by luck (torch.utils.deterministic)."""
    before, warn = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn)


def _check_hidden(answer):
    with practice_gpus(2):
        for device, dtype, shape, size in (
            (CPU, "float32", (4, 5, 3), 8),
            (GPUS[0], "float32", (2, 7, 3), 4),
            (GPUS[1], "float32", (3, 2, 5), 6),
            (GPUS[1], "bfloat16", (1, 2, 3), 5),
            (CPU, "float64", (0, 2, 3), random.randint(1, 9)),
        ):
            x = (
                torch.rand(shape[::-1], device=device)
                .to(getattr(torch, dtype))
                .permute(2, 1, 0)
                .requires_grad_()
            )
            with _visible_garbage():
                found = call(answer, x, size)
            case = f"for x of shape {shape}, {dtype}, on {device}"
            if not isinstance(found, torch.Tensor):
                raise NotYet(f"{case}: got {type(found).__name__}; expected a tensor.")
            _same_state(found, x, (shape[0], size), case)
    return "zeros on the CPU and on two GPUs, in three dtypes, always where x is."


def _same_state(found, x, shape, case):
    if tuple(found.shape) != shape:
        raise NotYet(
            f"{case}: shape {tuple(found.shape)}, expected {shape}, which is (batch, size)."
        )
    if found.device != x.device:
        raise NotYet(
            f"{case}: the state is on {found.device}. Which tensor knows where the work happens?"
        )
    if found.dtype != x.dtype:
        raise NotYet(
            f"{case}: the state is {found.dtype}. The device follows x; the number format must follow it too."
        )
    if found.count_nonzero():
        raise NotYet(f"{case}: not all elements are zero; fresh memory from empty holds anything.")
    if found.requires_grad:
        raise NotYet(
            f"{case}: the state requires grad. Was it computed from x, instead of made like it?"
        )


hidden = Exercise(
    key="02.hidden",
    title="make the state where the input is",
    minutes=4,
    lines=1,
    difficulty=1,
    check_answer=_check_hidden,
    hints=(
        "x knows its device and its dtype. Which tensor methods make a new tensor that follows another one?",
        "The shape is (x.shape[0], size), so *_like does not fit. Look at the methods that begin with new_.",
    ),
    reference=first_state,
    explanation="new_zeros takes device and dtype from x: no device is named, and the module runs where its input is. "
    "torch.zeros(..., device=x.device, dtype=x.dtype) says the same in more words.",
    wrong=(
        Wrong(lambda x, size: torch.zeros(x.shape[0], size, dtype=x.dtype), "is on cpu"),
        Wrong(lambda x, size: torch.zeros(x.shape[0], size, device=x.device), "number format"),
        Wrong(
            lambda x, size: torch.zeros(
                x.shape[0], size, dtype=x.dtype, device="cuda" if x.is_cuda else "cpu"
            ),
            "on cuda:1: the state is on cuda:0",
        ),
        Wrong(lambda x, size: torch.zeros_like(x), "which is (batch, size)"),
        Wrong(lambda x, size: torch.zeros(x.shape[0], size).to(x) + 0 * x.sum(), "requires grad"),
        Wrong(lambda x, size: x.new_empty(x.shape[0], size), "fresh memory"),
        Wrong(lambda x, size: x.new_ones(x.shape[0], size), "not all elements are zero"),
    ),
)


# --- move a nested batch ---------------------------------------------------------------------------------------------
def move_batch(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: move_batch(value, device) for key, value in batch.items()}
    if hasattr(batch, "_fields"):  # a namedtuple takes its parts one by one
        return type(batch)(*(move_batch(part, device) for part in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move_batch(part, device) for part in batch)
    return batch


Pair = namedtuple("Pair", "image label")


def _batches():
    t = torch.rand
    yield "a tensor", t(2, 3)
    yield "a dict", {"image": t(2, 3), "label": torch.tensor([1, 2])}
    yield "a tuple", (t(3, 2).T, t(()), [t(0)], t(2).half())
    yield (
        "a dict with other things",
        {"image": t(2), "name": "cat", "size": 3, "none": None, "flag": True},
    )
    yield "a list of tuples of dicts", [({"x": t(2)}, [t(1), "a"]), ()]
    yield "a namedtuple", Pair(t(2), torch.tensor(1))
    yield "a dict with a namedtuple", {"pairs": [Pair(t(1), "dog")], "ids": [1, 2]}
    yield "an empty dict", {}
    yield "a string", "only text"


def _check_batch(answer):
    with practice_gpus(2):
        for device in (GPUS[0], GPUS[1], CPU):
            for name, batch in _batches():
                untouched = copy.deepcopy(batch)
                _like(call(answer, batch, device), untouched, device, name)
                _like(batch, untouched, CPU, f"{name}, afterwards (the original)")
    return "nine kinds of batch on three devices; structure, values and all other objects kept."


def _like(found, expected, device, path):
    """Compare what came back, part by part; `path` says where we are."""
    if type(found) is not type(expected):
        raise NotYet(
            f"{path}: came back as {type(found).__name__}, expected {type(expected).__name__}."
            f"{_why_type(found, expected)}"
        )
    if isinstance(expected, torch.Tensor):
        if found.device != device:
            why = (
                "The batch you were given has changed: build a new container."
                if "the original" in path
                else "Is this the device you were given, and do you look inside each container?"
            )
            raise NotYet(f"{path}: the tensor is on {found.device}, expected {device}. {why}")
        if found.dtype != expected.dtype or not torch.equal(found.cpu(), expected):
            raise NotYet(f"{path}: the values or the dtype changed on the way.")
    elif isinstance(expected, dict):
        if found.keys() != expected.keys():
            raise NotYet(f"{path}: keys {list(found)}, expected {list(expected)}.")
        for key in expected:
            _like(found[key], expected[key], device, f"{path}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            raise NotYet(f"{path}: {len(found)} parts, expected {len(expected)}.")
        for i, part in enumerate(expected):
            _like(found[i], part, device, f"{path}[{i}]")
    elif found != expected:
        raise NotYet(f"{path}: {found!r}, expected {expected!r} untouched.")


def _why_type(found, expected):
    if found is None:
        return " Does every path return something?"
    if hasattr(expected, "_fields"):
        return " The names of its fields are lost: rebuild it with its own type, one argument per field."
    return " Code that unpacks the batch may depend on the type: keep it."


def _mover(
    tensor=torch.Tensor.to,
    pair=lambda pair, parts: type(pair)(*parts),
    other=lambda value, device: value,
    some=lambda kept, parts: type(kept)(parts),
    keep=lambda kept, parts: parts,
):
    """A move_batch with one slip: how a tensor, a namedtuple, anything else, a sequence or a dict is treated."""

    def move(batch, device):
        if isinstance(batch, torch.Tensor):
            return tensor(batch, device)
        if isinstance(batch, dict):
            return keep(batch, {key: move(value, device) for key, value in batch.items()})
        if isinstance(batch, (list, tuple)):
            return (pair if hasattr(batch, "_fields") else some)(
                batch, [move(part, device) for part in batch]
            )
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


batch = Exercise(
    key="02.batch",
    title="move a nested batch",
    minutes=8,
    lines=9,
    difficulty=2,
    check_answer=_check_batch,
    hints=(
        "Recursion: a tensor moves; a container is rebuilt from moved parts; everything else comes back as it is.",
        "Four tests with isinstance. A namedtuple is a tuple with _fields, and its type takes the parts as separate "
        "arguments: type(batch)(*parts).",
    ),
    reference=move_batch,
    explanation="The function calls itself on each part, so depth does not matter. Containers keep their type, because "
    "code that unpacks a batch depends on it, and the original is left alone.",
    wrong=(
        Wrong(_mover(tensor=_forget), "a tensor: the tensor is on cpu"),
        Wrong(_move_flat, "a tuple[0]: the tensor is on cpu"),
        Wrong(_mover(keep=lambda kept, parts: kept.update(parts) or kept), "build a new container"),
        Wrong(_mover(some=lambda kept, parts: parts), "expected tuple"),
        Wrong(_mover(pair=lambda pair, parts: tuple(parts)), "names of its fields"),
        Wrong(_mover(other=lambda value, device: value.to(device)), "AttributeError: 'str'"),
        Wrong(_mover(other=lambda value, device: None), "Does every path return"),
        Wrong(_mover(pair=lambda pair, parts: type(pair)(parts)), "TypeError"),
        Wrong(_mover(tensor=lambda tensor, device: tensor.cuda()), "the device you were given"),
    ),
)


# --- many tensors, one copy ------------------------------------------------------------------------------------------
def move_packed(tensors, device):
    packed = torch.cat([t.flatten() for t in tensors]).to(device)
    parts = packed.split([t.numel() for t in tensors])
    return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]


def _check_packed(answer):
    with practice_gpus(2) as gpus:
        for device in GPUS:
            for shapes in ([(2, 3)], [(3,), (2, 2), ()], [(5, 1), (0,), (4, 2, 3)], [(2,)] * 50):
                dtype = torch.float16 if len(shapes) == 1 else torch.float32
                tensors = [torch.rand(shape, dtype=dtype) for shape in shapes] + [
                    torch.rand(4, 3, dtype=dtype).T
                ]
                with _counted(gpus) as copies:
                    found = call(answer, list(tensors), device)
                _packed(found, tensors, device)
                if copies["d2h"] + copies["d2d"]:
                    raise NotYet(
                        "data came back from the GPU, or went on to another one: cut it where it is."
                    )
                if copies["h2d"] != 1:
                    raise NotYet(
                        f"{len(tensors)} tensors went in {copies['h2d']} copies, expected 1. Join them first."
                    )
    return "one copy for up to 51 tensors, and each came out in its own shape."


def _packed(found, tensors, device):
    if not isinstance(found, (list, tuple)) or len(found) != len(tensors):
        kind = f"{len(found)} parts" if isinstance(found, (list, tuple)) else type(found).__name__
        raise NotYet(
            f"got {kind}; expected a list of {len(tensors)} tensors, one for each that went in."
        )
    for t, part in zip(tensors, found, strict=True):
        if not isinstance(part, torch.Tensor) or part.device != device:
            where = f"on {part.device}" if isinstance(part, torch.Tensor) else type(part).__name__
            raise NotYet(f"a part is {where}, expected {device}.")
        if part.shape != t.shape:
            raise NotYet(
                f"a tensor of shape {tuple(t.shape)} came out as {tuple(part.shape)}. Joined ones are flat: "
                "give each part its shape again."
            )
        if not torch.equal(part.cpu(), t):
            raise NotYet(
                f"the values of the tensor of shape {tuple(t.shape)} (strides {t.stride()}) changed. Are the "
                "parts cut in the order in which they were joined?"
            )


def _packed_reversed(tensors, device):
    packed = torch.cat([t.flatten() for t in reversed(tensors)]).to(device)
    return [
        part.view(t.shape)
        for part, t in zip(packed.split([t.numel() for t in tensors]), tensors, strict=True)
    ]


packed = Exercise(
    key="02.packed",
    title="many tensors, one copy",
    minutes=6,
    lines=3,
    difficulty=3,
    check_answer=_check_packed,
    hints=(
        "Three steps: join the flattened tensors with torch.cat, move the result, cut it with split.",
        "split takes a list of lengths: [t.numel() for t in tensors]. Each part then gets its shape with view.",
    ),
    reference=move_packed,
    explanation="Joining costs a copy in the CPU's own memory, and cutting costs none, since split and view only look "
    "at the same memory. So the fixed price of the journey is paid once.",
    wrong=(
        Wrong(lambda tensors, device: [t.to(device) for t in tensors], "went in 2 copies"),
        Wrong(
            lambda tensors, device: [t.flatten() for t in move_packed(tensors, device)],
            "Joined ones are flat",
        ),
        Wrong(
            lambda tensors, device: torch.cat([t.flatten() for t in tensors]).to(device),
            "got Tensor",
        ),
        Wrong(_packed_reversed, "in the order in which"),
        Wrong(lambda tensors, device: tensors, "a part is on cpu"),
    ),
)


# --- repair three placements -----------------------------------------------------------------------------------------
def repaired(x, weight):
    x = x.to(weight.device)
    bias = weight.new_ones(weight.shape[1])
    return (x @ weight + bias).sigmoid().detach().cpu().numpy()


def _check_repair(answer):
    with practice_gpus(2) as gpus:
        for home, source, rows in (
            (CPU, CPU, 3),
            (GPUS[0], CPU, 4),
            (GPUS[1], CPU, 1),
            (GPUS[1], GPUS[1], 2),
            (CPU, GPUS[0], 2),
            (GPUS[0], GPUS[1], 2),
        ):
            x, weight = (
                torch.rand(rows, 5, device=source),
                torch.rand(5, rows + 1, device=home, requires_grad=True),
            )
            case = f"x on {x.device}, weight on {weight.device}"
            with _counted(gpus) as copies:
                found = call(answer, x, weight)
            _same_numbers(found, x, weight, case)
            _where_work(copies, x, weight, case)
            if weight.device != home or not weight.requires_grad:
                raise NotYet(f"{case}: weight itself has changed; leave it as it is.")
    return "six pairs of places, and the work ran where weight lives."


def _same_numbers(found, x, weight, case):
    if not isinstance(found, numpy.ndarray):
        raise NotYet(f"{case}: got {type(found).__name__}; expected a NumPy array.")
    expected = (x.detach().cpu() @ weight.detach().cpu() + 1).sigmoid().numpy()
    if found.shape != expected.shape or not numpy.allclose(found, expected, atol=1e-3):
        raise NotYet(
            f"{case}: the numbers differ from those of broken on the CPU. Keep bias and sigmoid, repair places only."
        )


def _where_work(copies, x, weight, case):
    if weight.device != CPU and x.device == CPU and (copies["h2d"], copies["d2h"]) != (1, 1):
        if not copies["h2d"]:
            raise NotYet(
                f"{case}: nothing went to the GPU, so the work ran on the CPU. Move x to weight instead."
            )
        raise NotYet(
            f"{case}: {copies['h2d']} copies went to the GPU and {copies['d2h']} came back; one each is "
            "enough. Make bias where it is needed."
        )


def _variant(
    move=lambda x, w: x.to(w.device),
    bias=lambda w: w.new_ones(w.shape[1]),
    back=lambda p: p.detach().cpu().numpy(),
):
    """A `repaired` with one slip: how x moves, how bias is made, or how the result comes back."""
    return lambda x, weight: back((move(x, weight) @ weight + bias(weight)).sigmoid())


def _on_cpu(x, weight):
    return (x.cpu() @ weight.cpu() + torch.ones(weight.shape[1])).sigmoid().detach().numpy()


repair = Exercise(
    key="02.repair",
    title="repair three placements",
    minutes=5,
    lines=3,
    difficulty=2,
    check_answer=_check_repair,
    hints=(
        "One fault a line: a result that nobody keeps, a tensor born on the CPU, a conversion NumPy cannot do.",
        "Assign what .to returns; make bias with weight.new_ones; before .numpy() come .detach() and .cpu().",
    ),
    reference=repaired,
    explanation="weight decides where the work happens: x moves to it and is assigned, bias is made beside it, and "
    "only the small result travels back, without its graph.",
    wrong=(
        Wrong(_variant(move=lambda x, w: x), "but got"),
        Wrong(_variant(bias=lambda w: torch.ones(w.shape[1])), "at least two devices"),
        Wrong(_variant(back=lambda p: p.detach().numpy()), "can't convert"),
        Wrong(_variant(back=lambda p: p.cpu().numpy()), "requires grad"),
        Wrong(_variant(bias=lambda w: 0), "Keep bias"),
        Wrong(_on_cpu, "the work ran on the CPU"),
        Wrong(_variant(bias=lambda w: torch.ones(w.shape[1]).to(w.device)), "one each is enough"),
        Wrong(_variant(back=lambda p: p), "expected a NumPy array"),
    ),
)


QUIZ = (
    Question(
        "02.alone",
        'x is on the CPU. After the line x.to("cuda:0"), where is x?',
        ("On cuda:0", "On the CPU", "On both"),
        (
            "The call made a new tensor there and nobody kept it.",
            "Yes: .to returns the moved tensor, and x was not assigned.",
            "A copy is another tensor.",
        ),
        1,
    ),
    Question(
        "02.current",
        'Inside `with torch.device("cuda:1"):`, where does torch.zeros(3, device="cuda") live?',
        (
            "On cuda:1, the device of the block",
            "On the current CUDA device, cuda:0 unless changed",
            "On the CPU",
        ),
        (
            "The block only fills in a device where none is given; here one is.",
            'Yes: an explicit device wins, and plain "cuda" means the current one.',
            "A device was given.",
        ),
        1,
    ),
    Question(
        "02.result",
        "The current device is cuda:1, and y lives on cuda:0. Where does y + y live?",
        ("On cuda:0", "On cuda:1", "It raises an error"),
        (
            "Yes: results live where their operands live.",
            "The current device matters for creation only.",
            "The operands share one device, so nothing is wrong.",
        ),
        0,
    ),
    Question(
        "02.pieces",
        "10,000 small tensors must reach the GPU. What makes it fastest?",
        ("A faster link", "Joining them into one copy", "A GPU with more multiprocessors"),
        (
            "Bandwidth hardly matters where the fixed price of each copy dominates.",
            "Yes: the fixed price is then paid once.",
            "The copy does not use them.",
        ),
        1,
    ),
    Question(
        "02.shape",
        "t has shape (2, 3). What is torch.tensor(t.shape)?",
        (
            "A tensor of shape (2, 3) filled with zeros",
            "A tensor that holds the numbers 2 and 3",
            "An error",
        ),
        (
            "That is torch.zeros(t.shape), or torch.zeros_like(t) to follow t's device too.",
            "Yes: torch.tensor takes values. A shape is one.",
            "It works, and so it is a trap.",
        ),
        1,
    ),
)
