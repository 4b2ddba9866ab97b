"""Error messages of many releases are recognized, others are not, and the box shows what the plain function prints."""

import contextlib
import datetime
import functools
import io
import multiprocessing
import re
import sys
import warnings
from pathlib import Path

import nbformat
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from course import pages as course
from course import troubleshooting
from course.doctor.known_errors import known_errors
from course.troubleshooting import child
from practice_gpus import practice_gpus

pytestmark = pytest.mark.gpu


def said():
    """Return (entry, words) of every message in messages.txt."""
    lines = (Path(__file__).parent / "messages.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t", 1) for line in lines if not line.startswith("#")]
    return [(key, words.encode().decode("unicode_escape")) for key, words in pairs]


PAGE = Path(__file__).parents[1] / "notebooks" / "91_troubleshooting.ipynb"
MESSAGES = [(key, words) for key, words in said() if key != "none"]
NEAR_MISSES = [words for key, words in said() if key == "none"]
TRACEBACK = """\x1b[0;31m---------------------------------------------------------------------------\x1b[0m
\x1b[0;31mRuntimeError\x1b[0m                              Traceback (most recent call last)
Cell \x1b[0;32mIn[3], line 2\x1b[0m
      1 model = SmallCNN().to("cuda")
----> 2 model(images)

File /lib/python3.12/site-packages/torch/nn/modules/conv.py:543, in Conv2d._conv_forward(self, input, weight, bias)
RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should
be the same or input should be a MKLDNN tensor and weight is a dense tensor
"""


@pytest.mark.parametrize(
    ("key", "message"), MESSAGES, ids=[f"{key}{i}" for i, (key, _) in enumerate(MESSAGES)]
)
def test_words_of_many_releases_are_recognized(key, message):
    found = troubleshooting.find(message)
    assert [match.known.key for match in found] == [key]


@pytest.mark.parametrize("message", NEAR_MISSES)
def test_near_misses_are_not_recognized(message):
    assert troubleshooting.find(message) == []
    assert "isn't one of the" in troubleshooting.explanation(message)
    assert "the report of this command" in troubleshooting.explanation(message)


def test_unknown_cuda_errors_get_the_hint_that_they_come_late():
    assert "CUDA_LAUNCH_BLOCKING" in troubleshooting.explanation(
        "RuntimeError: CUDA error: invalid configuration argument"
    )
    assert "CUDA_LAUNCH_BLOCKING" not in troubleshooting.explanation("ValueError: something else")


def test_a_whole_traceback_with_colors_and_wrapped_lines_is_understood():
    assert troubleshooting.find(TRACEBACK)[0].known.key == "input_and_weight"


def test_of_several_errors_the_last_one_is_explained_and_the_others_are_named():
    chain = f"{MESSAGES[0][1]}\n\nDuring handling of the above exception, another exception occurred:\n\n{TRACEBACK}"
    text = troubleshooting.explanation(chain)
    assert (
        text.startswith("The input and the model") and "Also here One operation got tensors" in text
    )


@pytest.mark.parametrize("message", [None, 3, RuntimeError("x")])
def test_what_is_no_text_is_refused(message):
    with pytest.raises(TypeError, match="it takes the text of an error"):
        troubleshooting.find(message)


def test_a_dead_worker_is_not_taken_for_the_error_that_stopped_it():
    main = "AttributeError: Can't get attribute 'Squares' on <module '__main__' (built-in)>"
    text = troubleshooting.explanation(
        f"{main}\nRuntimeError: DataLoader worker (pid(s) 10249) exited unexpectedly"
    )
    assert text.startswith("A worker process died")
    assert "Also here A new process can't find" in text
    prefixes = (
        'Missing key(s) in state_dict: "module.a". Unexpected key(s) in state_dict: "_orig_mod.a".'
    )
    assert [match.known.key for match in troubleshooting.find(prefixes)] == [
        "module_prefix",
        "wrapped_model",
    ]


def test_a_long_text_is_searched_to_its_end():
    """A pattern that goes back and forth would take hours."""
    text = "Tensor for x is on CPU, Missing key(s) in state_dict: " * 4000
    assert troubleshooting.find(text) is not None


def test_the_table_names_other_notebooks_that_exist():
    numbers = {lesson.number for lesson in course.NOTEBOOKS} - {"91"} | {""}
    assert {known.lesson for known in known_errors()} <= numbers


def test_a_package_of_another_build_stands_with_the_packages():
    """Who reads that an operator does not exist looks there, not under missing GPUs."""
    page = "\n".join(cell.source for cell in nbformat.read(PAGE, as_version=4).cells)
    [section] = re.findall(r"^## A name or a package is missing\n(.*?)^## ", page, re.M | re.S)
    assert "torchvision::nms" in section


def message_of(call):
    """Return the text of the error that `call` raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is asked
        call()
    return f"{caught.type.__name__}: {caught.value}"


@contextlib.contextmanager
def setting(change, value, back):
    """Call change(value) for a block and change(back) after it."""
    change(value)
    try:
        yield
    finally:
        change(back)


def loader():
    with torch.device("cuda"):
        next(iter(DataLoader(range(4), shuffle=True)))


def halted():
    with setting(torch.cuda.set_sync_debug_mode, "error", "default"):
        torch.ones(1, device="cuda").item()


def foreign():
    file = io.BytesIO()
    torch.save({"x": multiprocessing.Process}, file)
    torch.load(io.BytesIO(file.getvalue()))


def halves():
    layer, scaler = nn.Linear(2, 2).half(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(layer.parameters())
    scaler.scale(layer(torch.ones(1, 2).half()).sum()).backward()
    scaler.step(optimizer)


def mixed():
    change = functools.partial(setattr, torch.backends.cuda.matmul, "fp32_precision")
    with setting(change, "tf32", "none"):
        torch.get_float32_matmul_precision()


def backward_twice():
    loss = torch.ones(2, requires_grad=True).square().sum()
    loss.backward()
    loss.backward()


def events():
    torch.cuda.Event().elapsed_time(torch.cuda.Event())


def ones(*shape):
    """Return ones on the GPU."""
    return torch.ones(shape, device="cuda")


def store(port, world):
    """Return a store that `world` processes are to join; this one waits a second for the others."""
    patience = datetime.timedelta(seconds=1)
    return torch.distributed.TCPStore("127.0.0.1", port, world, True, timeout=patience)


def same_port():
    first = store(0, 1)
    store(first.port, 1)


class Cpu(torch.autograd.Function):
    """A backward of one's own that forgets the device."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.cpu()


class Asks(nn.Linear):
    """Asks its parameters for their device, as many models do."""

    def forward(self, x):
        return super().forward(x.to(next(self.parameters()).device))


def graph(*size):
    """Return ones on the GPU that want a gradient."""
    return torch.ones(size, device="cuda", requires_grad=True)


def hooked():
    y = graph(2) * 2
    y.register_hook(lambda grad: grad.cpu())
    y.sum().backward()


def dynamic():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(2, 2)), {nn.Linear})
        model(ones(1, 2))


def repeatable():
    with setting(torch.use_deterministic_algorithms, True, False), contextlib.suppress(TypeError):
        F.adaptive_avg_pool2d(graph(1, 1, 5, 5), 2).sum().backward()


def no_inf_checks():
    layer, scaler = nn.Linear(2, 2).cuda(), torch.amp.GradScaler("cuda")
    scaler.scale(graph(1).sum()).backward()
    scaler.step(torch.optim.SGD(layer.parameters()))


def below_autocast():
    with torch.autocast("cuda"):
        F.binary_cross_entropy(ones(2).half(), ones(2).half())


def overwritten():
    w = torch.ones(2, requires_grad=True)
    y = w.exp()
    y += 1
    y.sum().backward()


def changed_leaf():
    w = torch.ones(2, requires_grad=True)
    w += 1


def inference():
    with torch.inference_mode():
        x = torch.ones(2)
    (x * torch.ones(2, requires_grad=True)).sum()


def shuffled():
    next(iter(DataLoader(range(4), shuffle=True, generator=torch.Generator("cuda"))))


def group_twice():
    address = f"tcp://127.0.0.1:{store(0, 1).port + 1}"
    join = functools.partial(torch.distributed.init_process_group, "gloo", address, rank=0)
    join(world_size=1)
    try:
        join(world_size=1)
    finally:
        torch.distributed.destroy_process_group()


def other_optimizer():
    small = torch.optim.SGD([torch.ones(2, requires_grad=True)])
    torch.optim.SGD(nn.Linear(2, 2).parameters()).load_state_dict(small.state_dict())


LINEAR = nn.Linear(2, 2)
PRACTICE = [
    (
        "two_devices",
        lambda: torch.stft(ones(800), 400, window=torch.ones(400), return_complex=True),
    ),
    ("two_devices", lambda: torch.meshgrid(ones(2), torch.ones(2), indexing="ij")),
    (
        "two_devices",
        lambda: F.grid_sample(ones(1, 1, 4, 4), torch.zeros(1, 2, 2, 2), align_corners=True),
    ),
    (
        "two_devices",
        lambda: torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), ones(1)),
    ),
    ("two_devices", lambda: torch.empty(0).set_(ones(2).untyped_storage())),
    ("custom_gradient", lambda: Cpu.apply(graph(2)).sum().backward()),
    ("custom_gradient", hooked),
    ("replica", lambda: nn.DataParallel(Asks(2, 2).cuda())(ones(4, 2))),
    ("gather_cpu", lambda: nn.parallel.gather([torch.ones(2), torch.ones(2)], 0)),
    ("rng_state", lambda: torch.set_rng_state(torch.get_rng_state().cuda())),
    ("half_overflow", lambda: ones(2).half().masked_fill(ones(2).bool(), -1e9)),
    ("index_put_dtype", lambda: ones(3).__setitem__(ones(2).long(), ones(2).half())),
    ("dtype_missing", lambda: ones(2, 2).int() @ ones(2, 2).int()),
    ("dtype_missing", lambda: ones(2).int().mean()),
    ("dtype_missing", lambda: torch.linalg.inv(ones(2, 2).half())),
    ("lengths", lambda: nn.utils.rnn.pack_padded_sequence(ones(2, 3, 1), ones(2).long())),
    ("non_leaf", lambda: torch.optim.SGD([torch.ones(2, requires_grad=True).cuda()])),
    ("meta", lambda: nn.Linear(2, 2, device="meta").to("cuda")),
    ("deterministic", repeatable),
    ("no_cuda_kernel", dynamic),
    ("cpu_generator", lambda: torch.randperm(4, generator=torch.Generator("cuda"))),
    ("cpu_generator", shuffled),
    ("generator", lambda: torch.randn(4, device="cuda", generator=torch.Generator())),
    ("no_inf_checks", no_inf_checks),
    ("bce_autocast", below_autocast),
    ("legacy_constructor", lambda: torch.Tensor([1.0], device="cuda")),
    ("not_cuda", lambda: torch.cuda.get_device_properties("cpu")),
    ("two_devices", lambda: ones(2) + torch.ones(2)),
    ("two_devices", lambda: F.cross_entropy(ones(2, 3), torch.tensor([0, 1]))),
    ("two_devices", lambda: torch.arange(3)[torch.tensor([1], device="cuda")]),
    ("two_devices", lambda: nn.LSTM(3, 3).cuda()(torch.ones(1, 2, 3))),
    ("two_devices", lambda: nn.Embedding(3, 3).cuda()(torch.tensor([1]))),
    ("input_and_weight", lambda: nn.Conv2d(3, 4, 3).cuda()(torch.ones(8, 3, 8, 8))),
    ("to_numpy", lambda: torch.ones(2, device="cuda").numpy()),
    ("ordinal", lambda: torch.ones(2, device="cuda:99")),
    ("out_of_memory", lambda: torch.empty(2**40, dtype=torch.uint8, device="cuda")),
    ("device_assert", lambda: F.cross_entropy(ones(2, 3), torch.tensor([0, 5], device="cuda"))),
    ("generator", loader),
    ("sync_mode", halted),
    ("events", events),
    ("pinning", lambda: torch.ones(2, device="cuda").pin_memory()),
    ("data_parallel", lambda: nn.DataParallel(nn.Linear(3, 3).to("cuda:1"))(torch.rand(4, 3))),
    ("practice", lambda: torch.cuda.CUDAGraph()),
]
RAISED = [
    ("no_graph", lambda: torch.ones(2).sum().backward()),
    ("not_scalar", lambda: torch.ones(2, requires_grad=True).backward()),
    ("in_place", overwritten),
    ("leaf_in_place", changed_leaf),
    ("inference", inference),
    ("empty_parameters", lambda: torch.optim.SGD([])),
    ("optimizer_groups", other_optimizer),
    ("collate", lambda: torch.utils.data.default_collate([torch.ones(2), torch.ones(3)])),
    ("view", lambda: torch.ones(2, 3).t().view(-1)),
    ("probability", lambda: F.binary_cross_entropy(torch.tensor([2.0]), torch.tensor([1.0]))),
    ("probability", lambda: torch.multinomial(torch.tensor([float("nan"), 1.0]), 1)),
    ("dtype_missing", lambda: torch.ones(2).long().softmax(0)),
    ("shapes", lambda: nn.Conv2d(3, 4, 3)(torch.ones(1, 1, 8, 8))),
    ("broken_file", lambda: torch.load(io.BytesIO(b"PK\x03\x04 and no more"))),
    ("broken_file", lambda: torch.load(io.BytesIO(b"version https://git-lfs"), weights_only=False)),
    ("start_method", lambda: multiprocessing.set_start_method(multiprocessing.get_start_method())),
    ("group_twice", group_twice),
    ("numpy_grad", lambda: torch.ones(2, requires_grad=True).numpy()),
    ("no_to", lambda: [torch.ones(2)].to("cpu")),
    ("bad_index", lambda: F.cross_entropy(torch.rand(2, 3), torch.tensor([0, 5]))),
    ("bad_index", lambda: nn.Embedding(3, 3)(torch.tensor([9]))),
    ("bad_index", lambda: torch.arange(4)[torch.tensor([9])]),
    ("weights_only", foreign),
    ("state_dict", lambda: nn.Linear(2, 2).load_state_dict(nn.Conv2d(2, 2, 1).state_dict())),
    ("module_prefix", lambda: LINEAR.load_state_dict(nn.DataParallel(LINEAR).state_dict())),
    ("wrapped_model", lambda: nn.DataParallel(LINEAR).load_state_dict(LINEAR.state_dict())),
    ("label_dtype", lambda: F.cross_entropy(torch.rand(2, 3), torch.tensor([0.0, 1.0]))),
    ("label_dtype", lambda: nn.Embedding(3, 3)(torch.tensor([1.0]))),
    ("unscale", halves),
    ("mixed_apis", mixed),
    ("shapes", lambda: nn.Linear(3, 2)(torch.ones(2, 4))),
    ("backward_twice", backward_twice),
    ("two_dtypes", lambda: nn.Linear(2, 2).half()(torch.ones(1, 2))),
    ("two_dtypes", lambda: nn.Conv2d(1, 1, 1).bfloat16()(torch.ones(1, 1, 2, 2))),
    ("device_name", lambda: torch.device("gpu")),
    ("device_name", lambda: torch.device("cuda:x")),
    ("process_group", lambda: torch.distributed.all_reduce(torch.ones(1))),
    ("no_rank", lambda: torch.distributed.init_process_group("gloo", init_method="env://")),
    ("port_taken", same_port),
    ("rank_missing", lambda: store(0, 2)),
]


@pytest.mark.parametrize(
    ("key", "call"), RAISED, ids=[f"{key}{i}" for i, (key, _) in enumerate(RAISED)]
)
def test_errors_that_this_pytorch_raises_are_recognized(key, call):
    assert troubleshooting.find(message_of(call))[0].known.key == key


@pytest.mark.parametrize(
    ("key", "call"), PRACTICE, ids=[f"{key}{i}" for i, (key, _) in enumerate(PRACTICE)]
)
def test_errors_of_practice_gpus_are_recognized(key, call):
    with practice_gpus(2) as gpus:
        if key in ("practice", "device_assert") and gpus.real:
            pytest.skip("the GPUs are real: an assertion would break this process")
        assert troubleshooting.find(message_of(call))[0].known.key == key


def test_every_error_of_the_table_is_met_here():
    met = {key for key, _ in [*MESSAGES, *RAISED, *PRACTICE]}
    assert met == {known.key for known in known_errors()}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_what_this_machine_says_without_a_gpu_is_recognized():
    for call in (
        lambda: torch.ones(2, device="cuda"),
        torch.cuda.synchronize,
        lambda: torch.ones(2).pin_memory(),
        torch.mps.synchronize,
        torch.xpu.synchronize,
        lambda: torch.ones(2, device="mps"),
    ):
        assert troubleshooting.find(message_of(call)), message_of(call)


def test_without_widgets_the_box_prints_the_explanation(capsys):
    troubleshooting.explain_box(MESSAGES[0][1])
    assert capsys.readouterr().out.startswith("One operation got tensors")


class Still:
    """What stands in for a box in a saved notebook."""

    def update(self, page, text):
        self.text = text


def test_the_box_follows_what_is_pasted(monkeypatch):
    boxes = []
    monkeypatch.setattr(troubleshooting.show, "inside_notebook", lambda: True)
    monkeypatch.setattr(
        troubleshooting.show, "widget", lambda box, *still: (boxes.append(box), Still())[1]
    )
    troubleshooting.explain_box()
    _, field, answer = boxes[0].children
    assert troubleshooting.EMPTY in answer.value
    for key, message in MESSAGES:
        field.value = message
        known = next(known for known in known_errors() if known.key == key)
        assert known.title.replace("'", "&#x27;") in answer.value
        assert (".ipynb" in answer.value) == bool(known.lesson)
    field.value = "<script>alert(1)</script>"
    assert "<script>" not in answer.value and "course doctor" in answer.value
    field.value = ""
    assert troubleshooting.EMPTY in answer.value


def test_the_line_that_a_childs_traceback_blames_is_found():
    told = child.in_child("import os\nprint(os.environ['X'])\nraise ValueError('no')\n", X="y")
    assert told.startswith("y\n") and told.rstrip().endswith("ValueError: no")
    assert child.blamed_line(told) == "raise ValueError('no')"
    assert child.blamed_line("all is well") == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is forked here")
def test_a_program_leaves_nothing_to_the_next_one():
    child.in_child("import os, torch\nos.environ['LEFT'] = torch.left = 'behind'\n", NEW="1")
    told = child.in_child(
        "import os, torch\nprint(hasattr(torch, 'left'), os.environ.get('LEFT'), 'NEW' in os.environ)\n"
    )
    assert told == "False None False\n"


def test_what_a_program_says_before_it_exits_is_kept_and_its_end_does_no_harm():
    assert child.in_child("import sys\nprint('so far')\nsys.exit(3)\n").startswith("so far")
    assert child.in_child("print('on it goes')\n") == "on it goes\n"
