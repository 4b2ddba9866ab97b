"""Error messages of many releases are recognized, others are not, and the box shows what the plain function prints."""

import io
import multiprocessing
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers import course, troubleshooting
from helpers.troubleshooting.known import KNOWN
from practice_gpus import practice_gpus

# Words of many releases: (key, message). Old ones as users reported them.
MESSAGES = [
    (
        "two_devices",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
        "cuda:0 and cpu!",
    ),
    (
        "two_devices",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cpu "
        "and cuda:0! (when checking argument for argument mat1 in method wrapper_CUDA_addmm)",
    ),  # 2.4
    (
        "two_devices",
        "RuntimeError: Expected all tensors to be on the same device, but got mat1 is on cpu, different "
        "from other tensors on cuda:0 (when checking argument in method wrapper_CUDA_addmm)",
    ),  # 2.8
    (
        "two_devices",
        "RuntimeError: Expected object of backend CPU but got backend CUDA for argument #2 'weight'",
    ),
    (
        "two_devices",
        "RuntimeError: Expected object of device type cuda but got device type cpu for argument #1 'self' "
        "in call to _th_index_select",
    ),
    ("two_devices", "RuntimeError: expected device cuda:0 but got device cpu"),
    (
        "two_devices",
        "RuntimeError: Tensor for 'out' is on CPU, Tensor for argument #1 'self' is on CPU, but expected "
        "them to be on GPU (while checking arguments for addmm)",
    ),
    (
        "two_devices",
        "RuntimeError: Tensor for argument #2 'mat1' is on CPU, but expected it to be on GPU (while "
        "checking arguments for addmm)",
    ),
    (
        "two_devices",
        "RuntimeError: Expected object of type torch.cuda.FloatTensor but found type torch.FloatTensor for "
        "argument #2 'mat2'",
    ),
    (
        "two_devices",
        "RuntimeError: indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
    (
        "input_and_weight",
        "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should "
        "be the same or input should be a MKLDNN tensor and weight is a dense tensor",
    ),
    (
        "input_and_weight",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    (
        "input_and_weight",
        "RuntimeError: Input type (MPSFloatType) and weight type (torch.FloatTensor) should be the "
        "same",
    ),
    (
        "to_numpy",
        "TypeError: can't convert CUDA tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory "
        "first.",
    ),
    (
        "to_numpy",
        "TypeError: can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
        "host memory first.",
    ),
    (
        "numpy_grad",
        "RuntimeError: Can't call numpy() on Variable that requires grad. Use var.detach().numpy()",
    ),
    ("no_to", "AttributeError: 'list' object has no attribute 'to'"),
    ("not_run", "NameError: name 'model' is not defined. Did you mean: 'module'?"),
    ("no_module", "ModuleNotFoundError: No module named 'helpers'"),
    ("half_import", "ImportError: cannot load module more than once per process"),
    ("half_import", "RuntimeError: function '_has_torch_function' already has a docstring"),
    (
        "half_import",
        "RuntimeError: Only a single TORCH_LIBRARY can be used to register the namespace prims; please put "
        "all of your definitions in a single TORCH_LIBRARY block.",
    ),
    (
        "half_import",
        "KeyError: 'Algorithm already exists in dispatch namespace: mutual_weight. Fix by assigning a "
        "unique `name=` in the `@_dispatchable` decorator.'",
    ),
    (
        "no_kernel",
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch "
        "installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70.",
    ),
    (
        "no_kernel",
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
    ),
    (
        "no_kernel",
        "Found GPU0 GeForce GT 750M which is of cuda capability 3.0.\nPyTorch no longer supports this GPU",
    ),
    (
        "old_driver",
        "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version "
        "10010). Please update your GPU driver",
    ),
    (
        "no_driver",
        "AssertionError: \nFound no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    ),
    ("cpu_build", "AssertionError: Torch not compiled with CUDA enabled"),
    ("cpu_build", "RuntimeError: Tried to instantiate dummy base class Event"),
    (
        "cpu_build",
        "AttributeError: module 'torch._C' has no attribute '_cuda_resetPeakMemoryStats'",
    ),
    ("hidden", "RuntimeError: No CUDA GPUs are available"),
    (
        "ordinal",
        "RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors might be reported late",
    ),
    (
        "ordinal",
        "RuntimeError: Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1.",
    ),
    (
        "out_of_memory",
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.43 GiB total capacity; "
        "6.60 GiB already allocated; 2.94 MiB free; 6.70 GiB reserved in total by PyTorch)",
    ),  # 1.7
    (
        "out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 14.74 GiB of which 1.06 GiB is free.",
    ),  # 2.8
    (
        "out_of_memory",
        "MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max allowed: "
        "27.20 GiB). Tried to allocate 292.50 MiB on private pool.",
    ),
    (
        "out_of_memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    (
        "device_assert",
        "RuntimeError: cuda runtime error (59) : device-side assert triggered at THCStorage.cu:58",
    ),
    (
        "device_assert",
        "Assertion `t >= 0 && t < n_classes` failed.\nRuntimeError: CUDA error: device-side assert "
        "triggered",
    ),
    (
        "load_location",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() "
        "is False. If you are running on a CPU-only machine, please use torch.load with map_location",
    ),
    (
        "weights_only",
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you "
        "have two options, do those steps only if you trust the source of the checkpoint.",
    ),
    (
        "fork",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
        "use the 'spawn' start method",
    ),
    (
        "not_in_main",
        "AttributeError: Can't get attribute 'Squares' on <module '__main__' (built-in)>",
    ),
    ("worker_died", "RuntimeError: DataLoader worker (pid(s) 10249) exited unexpectedly"),
    ("worker_died", "RuntimeError: DataLoader worker (pid(s) 10249, 10250) exited unexpectedly"),
    ("worker_died", "RuntimeError: DataLoader worker (pid 4161) is killed by signal: Killed. "),
    (
        "worker_died",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared "
        "memory (shm).\nRuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is "
        "possible that dataloader's workers are out of shared memory.\n\nThe above exception was the "
        "direct cause of the following exception:\n\nRuntimeError: DataLoader worker (pid(s) 77) exited "
        "unexpectedly",
    ),
    (
        "worker_died",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with exit code 1",
    ),
    (
        "worker_died",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
    ),
    ("generator", "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'"),
    ("generator", "RuntimeError: Expected a 'cuda:0' generator device but found 'cpu'"),
    (
        "module_prefix",
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "
        '"fc.weight". \n\tUnexpected key(s) in state_dict: "module.fc.weight".',
    ),
    (
        "module_prefix",
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "
        '"fc.weight". \n\tUnexpected key(s) in state_dict: "_orig_mod.fc.weight".',
    ),
    (
        "wrapped_model",
        "RuntimeError: Error(s) in loading state_dict for DataParallel:\n\tMissing key(s) in state_dict: "
        '"module.fc.weight". \n\tUnexpected key(s) in state_dict: "fc.weight".',
    ),
    (
        "state_dict",
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "
        '"head.module.weight". \n\tUnexpected key(s) in state_dict: "head.weight".',
    ),
    (
        "state_dict",
        "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: copying",
    ),
    ("events", "RuntimeError: Both events must be recorded before calculating elapsed time."),
    (
        "old_amp",
        "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast(",
    ),
    (
        "two_dtypes",
        "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should "
        "be the same",
    ),
    (
        "two_dtypes",
        "RuntimeError: Input type (float) and bias type (c10::BFloat16) should be the same",
    ),
    ("two_dtypes", "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half"),
    ("two_dtypes", "RuntimeError: expected scalar type Float but found Long"),
    ("two_dtypes", "RuntimeError: expected scalar type Half but found Float"),
    ("label_dtype", "RuntimeError: expected scalar type Long but found Float"),
    ("library", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"),
    ("library", "RuntimeError: GET was unable to find an engine to execute this computation"),
    (
        "triton",
        "torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Either the package is "
        "not installed or it is too old.",
    ),
    (
        "mixed_apis",
        "RuntimeError: PyTorch is checking whether allow_tf32 is enabled for cuBlas matmul,Current status "
        "indicate that you have used mix of the legacy and new APIs to set the TF32 status",
    ),
    ("shapes", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x12 and 13x10)"),
    (
        "mps_float64",
        "TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support it",
    ),
    (
        "process_group",
        "ValueError: Default process group has not been initialized, please make sure to call "
        "init_process_group.",
    ),
    ("torchvision", "RuntimeError: operator torchvision::nms does not exist"),
    ("old_torch", "AttributeError: module 'torch' has no attribute 'accelerator'"),
]
NEAR_MISSES = [
    "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0",
    "RuntimeError: CUDA error: invalid configuration argument",
    "RuntimeError: grad can be implicitly created only for scalar outputs",
    "ValueError: Attempting to unscale the gradients twice",
    "RuntimeError: unscale_() has already been called on this optimizer since the last update().",
    "Pin memory thread exited unexpectedly",
    "-- Process 0 terminated with the following error:",
    "RuntimeError: DataLoader worker (pid 9) has finished",
    "ModuleNotFoundError: No module named 'triton.language'",
    "ModuleNotFoundError: No module named 'torchvision.transforms.functional_tensor'",
    "ModuleNotFoundError: No module named 'numpy._core'",
    "ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package",
    "UserWarning: Please use the new API settings to control TF32 behavior",
    "cuDNN algorithm: benchmark mode is off",
    "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    "RuntimeError: Expected all tensors to have the same number of dimensions",
    "AttributeError: 'list' object has no attribute 'append_'",
    "AttributeError: 'Net' object has no attribute 'to_device'",
    "AttributeError: module 'torch' has no attribute 'acelerator'",
    "AttributeError: Can't get attribute 'Net' on <module 'models' from 'models.py'>",
    "IndexError: list index out of range",
    "ValueError: Expected input batch_size (32) to match target batch_size (31).",
    "my program is out of memory and I do not know the device",
    "torch.cuda.is_available() is False",
]
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
    assert "not among the" in troubleshooting.explanation(
        message
    ) and "helpers doctor" in troubleshooting.explanation(message)


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
    assert text.startswith("The input and the model") and "Also here Tensors of two devices" in text


@pytest.mark.parametrize("message", ["", "  \n\t "])
def test_an_empty_message_gets_an_invitation(message):
    assert troubleshooting.explanation(message) == troubleshooting.EMPTY


@pytest.mark.parametrize("message", [None, 3, RuntimeError("x")])
def test_what_is_no_text_is_refused(message):
    with pytest.raises(TypeError, match="it takes the text of an error"):
        troubleshooting.find(message)


def test_a_dead_worker_is_not_taken_for_the_error_that_stopped_it():
    main = "AttributeError: Can't get attribute 'Squares' on <module '__main__' (built-in)>"
    text = troubleshooting.explanation(
        f"{main}\nRuntimeError: DataLoader worker (pid(s) 10249) exited unexpectedly"
    )
    assert (
        text.startswith("A worker process died") and "Also here A new process cannot find" in text
    )
    prefixes = (
        'Missing key(s) in state_dict: "module.a". Unexpected key(s) in state_dict: "_orig_mod.a".'
    )
    assert [match.known.key for match in troubleshooting.find(prefixes)] == [
        "module_prefix",
        "wrapped_model",
    ]


def test_typographic_quotes_do_not_matter():
    assert (
        troubleshooting.find("can\u2019t convert cuda:0 device type tensor to numpy")[0].known.key
        == "to_numpy"
    )


def test_a_long_text_is_searched_to_its_end():
    """A pattern that goes back and forth would take hours."""
    text = "Tensor for x is on CPU, Missing key(s) in state_dict: " * 4000
    assert troubleshooting.find(text) is not None


def test_the_table_has_one_entry_for_a_key_and_names_notebooks_that_exist():
    numbers = {lesson.number for lesson in course.NOTEBOOKS}
    assert len({known.key for known in KNOWN}) == len(KNOWN)
    assert {known.lesson for known in KNOWN} <= numbers
    for known in KNOWN:
        assert known.title and known.cause.endswith(".") and known.fix.endswith((".", ":", ")"))
        assert all(re.compile(pattern) and releases for pattern, releases in known.wordings)


def test_every_entry_has_a_message_here_or_is_raised_below():
    here = (
        {key for key, _ in MESSAGES}
        | {key for key, _ in RAISED}
        | {key for key, _ in PRACTICE}
        | ELSEWHERE
    )
    assert {known.key for known in KNOWN} == here


def message_of(call):
    """Return the text of the error that `call` raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is asked
        call()
    return f"{caught.type.__name__}: {caught.value}"


def loader():
    torch.set_default_device("cuda")
    try:
        next(iter(torch.utils.data.DataLoader(range(4), shuffle=True)))
    finally:
        torch.set_default_device(None)


def halted():
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.ones(1, device="cuda").item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


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
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        torch.get_float32_matmul_precision()
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


def backward_twice():
    loss = torch.ones(2, requires_grad=True).square().sum()
    loss.backward()
    loss.backward()


def events():
    torch.cuda.Event().elapsed_time(torch.cuda.Event())


PRACTICE = [
    ("two_devices", lambda: torch.ones(2, device="cuda") + torch.ones(2)),
    ("two_devices", lambda: torch.ones(2, 2, device="cuda") @ torch.ones(2, 2)),
    ("two_devices", lambda: F.cross_entropy(torch.rand(2, 3, device="cuda"), torch.tensor([0, 1]))),
    ("two_devices", lambda: torch.arange(3)[torch.tensor([1], device="cuda")]),
    ("two_devices", lambda: nn.LSTM(3, 3).cuda()(torch.ones(1, 2, 3))),
    ("two_devices", lambda: nn.Embedding(3, 3).cuda()(torch.tensor([1]))),
    ("input_and_weight", lambda: nn.Conv2d(3, 4, 3).cuda()(torch.ones(8, 3, 8, 8))),
    ("to_numpy", lambda: torch.ones(2, device="cuda").numpy()),
    ("ordinal", lambda: torch.ones(2, device="cuda:99")),
    ("out_of_memory", lambda: torch.empty(2**40, dtype=torch.uint8, device="cuda")),
    (
        "device_assert",
        lambda: F.cross_entropy(
            torch.rand(2, 3, device="cuda"), torch.tensor([0, 5], device="cuda")
        ),
    ),
    ("generator", loader),
    ("sync_mode", halted),
    ("events", events),
    ("pinning", lambda: torch.ones(2, device="cuda").pin_memory()),
    ("data_parallel", lambda: nn.DataParallel(nn.Linear(3, 3).to("cuda:1"))(torch.rand(4, 3))),
    ("practice", lambda: torch.cuda.CUDAGraph()),
]
RAISED = [
    ("numpy_grad", lambda: torch.ones(2, requires_grad=True).numpy()),
    ("no_to", lambda: [torch.ones(2)].to("cpu")),
    ("bad_index", lambda: F.cross_entropy(torch.rand(2, 3), torch.tensor([0, 5]))),
    ("bad_index", lambda: nn.Embedding(3, 3)(torch.tensor([9]))),
    ("bad_index", lambda: torch.arange(4)[torch.tensor([9])]),
    ("weights_only", foreign),
    ("state_dict", lambda: nn.Linear(2, 2).load_state_dict(nn.Conv2d(2, 2, 1).state_dict())),
    (
        "module_prefix",
        lambda: nn.Linear(2, 2).load_state_dict(nn.DataParallel(nn.Linear(2, 2)).state_dict()),
    ),
    (
        "wrapped_model",
        lambda: nn.DataParallel(nn.Linear(2, 2)).load_state_dict(nn.Linear(2, 2).state_dict()),
    ),
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
    (
        "process_group",
        torch.distributed.get_rank
        if not torch.distributed.is_available()
        else lambda: torch.distributed.all_reduce(torch.ones(1)),
    ),
    ("process_group", lambda: torch.distributed.init_process_group("gloo", init_method="env://")),
]
# Need hardware, a library or a system that is not here; their words come from PyTorch's sources.
ELSEWHERE = {
    "other_build",
    "no_accelerator",
    "host_memory",
    "illegal_access",
    "main_guard",
    "mps_missing",
    "same_gpu",
}


@pytest.mark.parametrize(
    ("key", "call"), RAISED, ids=[f"{key}{i}" for i, (key, _) in enumerate(RAISED)]
)
def test_troubleshooting_that_this_pytorch_raises_are_recognized(key, call):
    assert troubleshooting.find(message_of(call))[0].known.key == key


@pytest.mark.parametrize(
    ("key", "call"), PRACTICE, ids=[f"{key}{i}" for i, (key, _) in enumerate(PRACTICE)]
)
def test_troubleshooting_of_practice_gpus_are_recognized(key, call):
    with practice_gpus(2) as gpus:
        if key in ("practice", "device_assert") and gpus.real:
            pytest.skip("the GPUs are real: an assertion would break this process")
        assert troubleshooting.find(message_of(call))[0].known.key == key


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
    shown = capsys.readouterr().out
    troubleshooting.explain(MESSAGES[0][1])
    assert shown == capsys.readouterr().out and shown.startswith("Tensors of two devices")


def test_the_box_follows_what_is_pasted():
    _, field, answer = troubleshooting._box("").children
    assert troubleshooting.EMPTY in answer.value
    for key, message in MESSAGES:
        field.value = message
        title = next(known.title for known in KNOWN if known.key == key)
        assert title.replace("'", "&#x27;") in answer.value and ".ipynb" in answer.value
    field.value = "<script>alert(1)</script>"
    assert "<script>" not in answer.value and "helpers doctor" in answer.value
    field.value = ""
    assert troubleshooting.EMPTY in answer.value


def test_the_line_that_a_childs_traceback_blames_is_found():
    told = troubleshooting.in_child(
        "import os\nprint(os.environ['X'])\nraise ValueError('no')\n", X="y"
    )
    assert told.startswith("y\n") and told.rstrip().endswith("ValueError: no")
    assert troubleshooting.blamed_line(told) == "raise ValueError('no')"
    assert troubleshooting.blamed_line("all is well") == ""
