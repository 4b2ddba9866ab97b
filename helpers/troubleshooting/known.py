"""Errors that learners meet, with the words by which PyTorch reports them, their cause and their fix. Only data.

The `wordings` of an error are pairs: a regular expression (white space as one blank, case ignored), and the releases
in which these words were found. Looked up were the texts in the Linux builds of 1.1, 1.4, 1.7, 1.13, 2.0, 2.4, 2.8,
2.11 and 2.15 (for MPS, in the macOS build of 2.11), so "2.8 to 2.15" says that 2.4 words it otherwise; "1.7, 1.8" comes
from reports of users. Words of drivers and Python, those put together at run time, and those that were not looked up
release by release have "any". Notebook 91 reproduces the errors; `helpers.troubleshooting` looks messages up.
"""

from dataclasses import dataclass

GPU = r"(?:cuda|mps|xpu|hip)"
PLACE = rf"(?:cpu|{GPU})(?::\d+)?"
ON_CPU, ON_GPU = r"torch\.\w*Tensor", r"(?:torch\.(?:cuda|xpu)\.\w*Tensor|MPS\w*)"


@dataclass(frozen=True)
class Known:
    """One error: `key`, `title`, `wordings` ((pattern, releases), …), `cause`, `fix`, and the `lesson` on it."""

    key: str
    title: str
    wordings: tuple
    cause: str
    fix: str
    lesson: str


KNOWN = (
    Known(
        "two_devices",
        "Tensors of two devices met in one operation",
        (
            (rf"found at least two devices, {PLACE} and {PLACE}", "1.7 to 2.15"),
            (rf"but got \w+ is on {PLACE}, different from other tensors on {PLACE}", "2.8 to 2.15"),
            (
                r"indices should be either on \S+ or on the same device as the indexed tensor",
                "1.13 to 2.15",
            ),
            (r"expected self and mask to be on the same device", "1.13 to 2.15"),
            (r"Expected query, key, and value to have the same device type", "2.0 to 2.15"),
            (r"Input and (hidden|parameter) tensors are not at the same device", "1.1 to 2.15"),
            (
                r"Tensors? for .{1,80} (is|are) on (CPU|GPU),.{0,200} but expected (it|them) to be on (GPU|CPU)",
                "1.7, 1.8",
            ),
            (rf"Expected object of device type {PLACE} but got device type {PLACE}", "1.1 to 1.7"),
            (rf"expected device {PLACE} but got device {PLACE}", "1.4"),
            (r"Expected object of backend (CPU|CUDA) but got backend (CPU|CUDA)", "1.1 to 1.4"),
            (
                r"Expected object of type torch\.(cuda\.\w+ but found type torch\.\w+Tensor|\w+Tensor but found type "
                r"torch\.cuda)",
                "1.1",
            ),
        ),
        "A tensor was created without device=, or not moved, or its .to() was not assigned.",
        "Print .device of each tensor in the line that failed, and move the odd one: x = x.to(other.device).",
        "02",
    ),
    Known(
        "input_and_weight",
        "The input and the model are on different devices",
        (
            (
                rf"Input type \({ON_CPU}\) and (weight|bias) type \({ON_GPU}\) should be the same",
                "1.1 to 2.15",
            ),
            (
                rf"Input type \({ON_GPU}\) and (weight|bias) type \({ON_CPU}\) should be the same",
                "1.1 to 2.15",
            ),
        ),
        "torch.FloatTensor means FP32 on the CPU, torch.cuda.FloatTensor FP32 on a GPU: one of the two was not moved.",
        "Ask the model where it is: x = x.to(next(model.parameters()).device).",
        "03",
    ),
    Known(
        "to_numpy",
        "NumPy cannot read a GPU's memory",
        (
            (rf"can't convert {PLACE} device type tensor to numpy", "1.7 to 2.15"),
            (r"can't convert CUDA tensor to numpy", "1.1 to 1.4"),
        ),
        "NumPy arrays live in the CPU's memory; a copy is never made silently.",
        "x.detach().cpu().numpy(), or its short form x.numpy(force=True).",
        "02",
    ),
    Known(
        "numpy_grad",
        "NumPy knows no gradients",
        ((r"Can't call numpy\(\) on (Tensor|Variable) that requires grad", "1.1 to 2.15"),),
        "The tensor belongs to a graph of gradients, which an array cannot carry.",
        "x.detach().cpu().numpy().",
        "02",
    ),
    Known(
        "no_to",
        "A list or dict has no .to",
        (
            (
                r"'(list|dict|tuple|BatchEncoding|set)' object has no attribute '(to|cuda|cpu|device)'",
                "any",
            ),
        ),
        "Only tensors and modules move; a batch of several tensors is a container of them.",
        "Move its elements: [t.to(device) for t in batch], or a function for nested batches.",
        "02",
    ),
    Known(
        "no_kernel",
        "This build of PyTorch has no code for this GPU",
        (
            (r"no kernel image is available for execution on the device", "any"),
            (
                r"with CUDA capability sm_\d+ is not compatible with the current PyTorch installation",
                "1.7 to 2.15",
            ),
            (r"which is of cuda capability \d", "1.1 to 2.8"),
        ),
        "torch.cuda.is_available() is True, yet the card is older or newer than torch.cuda.get_arch_list() allows.",
        "Run: python3 -m helpers doctor. It names a build that has code for the card; if there is none, use the CPU.",
        "01",
    ),
    Known(
        "old_driver",
        "The NVIDIA driver is older than this build of PyTorch needs",
        (
            (r"NVIDIA driver on your system is too old", "1.1 to 2.15"),
            (r"CUDA driver version is insufficient for CUDA runtime version", "any"),
        ),
        "Each CUDA version needs a driver of a certain age. Code that asks is_available() goes on on the CPU after one "
        'warning; code that insists on "cuda" gets this error.',
        "Update the driver, or install a build for an older CUDA: python3 -m helpers doctor names one.",
        "01",
    ),
    Known(
        "no_driver",
        "There is no NVIDIA driver",
        ((r"Found no NVIDIA driver on your system", "1.1 to 2.15"),),
        "PyTorch was built for CUDA, but this machine has no driver, or a container does not see it.",
        'Without an NVIDIA GPU: device = "cpu". With one: install its driver; in a container: --gpus all. '
        "In Colab: Runtime → Change runtime type → T4 GPU.",
        "01",
    ),
    Known(
        "cpu_build",
        "This PyTorch was built without CUDA",
        (
            (r"Torch not compiled with CUDA enabled", "1.1 to 2.15"),
            (r"Tried to instantiate dummy base class", "1.1 to 2.15"),
            (r"module 'torch\._C' has no attribute '_cuda_", "any"),
            (r"Could not run '[\w:.]+' with arguments from the 'CUDA' backend", "any"),
        ),
        "The CPU build cannot use any GPU. It is the default on Windows and macOS.",
        'With an NVIDIA GPU, install a CUDA build: python3 -m helpers doctor prints the command. Without: "cpu".',
        "01",
    ),
    Known(
        "other_build",
        "This PyTorch was built without this kind of device",
        (
            (r"Torch not compiled with (XPU|MPS|MTIA) enabled", "2.4 to 2.15"),
            (r"PyTorch is not linked with support for \w+ devices", "1.4 to 2.15"),
            (r"Could not run '[\w:.]+' with arguments from the '(?!CUDA)\w+' backend", "any"),
            (r"Cannot execute \w+\(\) without MPS backend", "2.0 to 2.15"),
        ),
        "The code asks for a device (mps, xpu, …) for which this build has no code.",
        "Choose the device by what is there: torch.accelerator.current_accelerator(check_available=True).",
        "90",
    ),
    Known(
        "no_accelerator",
        "No accelerator is there to be asked",
        (
            (r"Cannot access accelerator device when none is available", "2.4 to 2.15"),
            (r"Need to provide pin_memory allocator to use pin memory", "2.4 to 2.8"),
        ),
        "torch.accelerator.* or pin_memory() was called on a machine without a GPU.",
        "Ask torch.accelerator.is_available() first.",
        "90",
    ),
    Known(
        "hidden",
        "PyTorch cannot start CUDA, or sees no GPU",
        (
            (r"No CUDA GPUs are available", "1.7 to 2.15"),
            (
                r"CUDA unknown error - this may be due to an incorrectly set up environment",
                "1.7 to 2.15",
            ),
            (r"CUDA driver initialization failed, you might not have a CUDA gpu", "1.7 to 2.15"),
            (r"no CUDA-capable device is detected", "any"),
        ),
        "Often CUDA_VISIBLE_DEVICES hides the GPUs, or a GPU's driver needs a restart (after an update, after sleep).",
        "Run: python3 -m helpers doctor. It looks at each cause and says which one it is.",
        "01",
    ),
    Known(
        "ordinal",
        "There is no GPU of that number",
        (
            (r"CUDA error: invalid device ordinal", "any"),
            (r"Invalid device id", "1.1 to 2.15"),
            (
                r"Attempting to deserialize object on (CUDA|XPU|MPS) device \d+ but torch\.\w+\.device_count\(\) is \d+",
                "1.1 to 2.15",
            ),
        ),
        "Numbers begin with 0, and CUDA_VISIBLE_DEVICES renumbers what it leaves visible.",
        "Compare with torch.cuda.device_count(); write cuda:0, and choose the card with CUDA_VISIBLE_DEVICES. "
        "In torch.load, use map_location.",
        "01",
    ),
    Known(
        "out_of_memory",
        "The GPU's memory is full",
        (
            (r"(CUDA|HIP|XPU) out of memory", "1.1 to 2.15"),
            (r"MPS backend out of memory", "2.11"),
            (r"cuda runtime error \(2\) : out of memory", "1.1 to 1.7"),
            (r"CUDA error: out of memory", "any"),
            (r"CUBLAS_STATUS_ALLOC_FAILED", "1.4 to 2.15"),
        ),
        "Weights, gradients, optimizer state and, mostly, activations need more than there is; or tensors leaked; "
        "or another process holds the memory.",
        "Smaller batch first; then accumulation, checkpointing, 16 bits. In a notebook, drop what old cells hold "
        "(del, an error's traceback), or restart the kernel. empty_cache() gives PyTorch no more memory; where much is "
        "reserved but unallocated, PYTORCH_ALLOC_CONF=expandable_segments:True helps more.",
        "05",
    ),
    Known(
        "host_memory",
        "The computer's own memory is full, not the GPU's",
        ((r"DefaultCPUAllocator: (can't|not enough) (allocate )?memory", "any"),),
        "A tensor on the CPU was larger than the memory that is left.",
        "Smaller batches, fewer DataLoader workers, and load data piece by piece.",
        "05",
    ),
    Known(
        "device_assert",
        "A kernel found an impossible index",
        ((r"device-side assert triggered", "any"),),
        "Mostly a label or an index out of range (a label of 10 for ten classes). GPU errors arrive late, so the "
        "traceback may point elsewhere, and from now on every CUDA call in this process fails.",
        "Restart the kernel. Run the same step on the CPU: there the line and the number are named. Or set "
        "CUDA_LAUNCH_BLOCKING=1 before CUDA starts.",
        "91",
    ),
    Known(
        "bad_index",
        "A label or an index is out of range",
        (
            (r"(?<!practice GPU: )Target -?\d+ is out of bounds", "1.4 to 2.15"),
            (r"(?<!practice GPU: )index out of range in self", "1.4 to 2.15"),
            (
                r"(?<!practice GPU: )index -?\d+ is out of bounds for dimension \d+ with size \d+",
                "1.1 to 2.15",
            ),
        ),
        "The CPU says at once what a GPU reports as a device-side assert.",
        "Labels of n classes are 0 to n - 1; an embedding needs as many rows as there are tokens.",
        "91",
    ),
    Known(
        "illegal_access",
        "A kernel left its memory",
        ((r"an illegal memory access was encountered|unspecified launch failure", "any"),),
        "A bug in a compiled extension or in a library, more rarely an index out of range or faulty hardware.",
        "Restart the kernel, set CUDA_LAUNCH_BLOCKING=1 before CUDA starts to get the true line, then try without "
        "the extension and with the newest PyTorch.",
        "91",
    ),
    Known(
        "library",
        "A library of NVIDIA could not start or work",
        (
            (r"CUDNN_STATUS_\w+|CUBLAS_STATUS_(?!ALLOC_FAILED)\w+", "any"),
            (
                r"Unable to find a valid cuDNN algorithm|unable to find an engine to execute this computation",
                "any",
            ),
        ),
        "Often an earlier error in disguise: memory almost full, an index out of range, or two versions of cuDNN.",
        "Restart, watch the memory, run the step on the CPU; then reinstall PyTorch in a fresh environment.",
        "05",
    ),
    Known(
        "load_location",
        "A file from a GPU is opened where there is none",
        (
            (
                r"Attempting to deserialize object on a (CUDA|XPU|MPS) device but torch\.\w+\.is_available\(\) is False",
                "1.1 to 2.15",
            ),
        ),
        "torch.save notes where each tensor was, and torch.load puts it back there.",
        'torch.load(path, map_location="cpu"), then model.to(device).',
        "04",
    ),
    Known(
        "weights_only",
        "The file holds more than tensors",
        ((r"Weights only load failed|WeightsUnpickler error", "1.13 to 2.15"),),
        "Since 2.6, torch.load opens only tensors and plain containers, because other pickled objects may run code.",
        "Save state_dict() and load that. weights_only=False only for files whose author you trust.",
        "04",
    ),
    Known(
        "fork",
        "CUDA was started before the process was forked",
        ((r"Cannot re-initialize (CUDA|XPU) in forked subprocess", "1.1 to 2.15"),),
        "A forked worker inherits a CUDA it cannot use; Linux forks DataLoader workers up to Python 3.13.",
        "Keep CUDA out of Dataset and collate: return CPU tensors, and move each batch in the training loop.",
        "91",
    ),
    Known(
        "not_in_main",
        "A new process cannot find a function or class of this notebook",
        ((r"Can't get attribute '\w+' on <module '__main__'", "any"),),
        "A fresh process (mp.spawn; DataLoader workers on Windows, on macOS and, from Python 3.14, on Linux) imports "
        "code by name, and what a cell defines has no file.",
        "num_workers=0, or move the class into a .py file. For several GPUs: a script and torchrun.",
        "06",
    ),
    Known(
        "worker_died",
        "A worker process died",
        (
            (r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) exited unexpectedly", "1.1 to 2.15"),
            (r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal: \w+", "any"),
            (r"Unexpected bus error encountered in worker", "any"),
            (r"process \d+ terminated with (exit code \d+|signal \w+)", "any"),
        ),
        "Killed: the computer's memory is full. Bus error: shared memory is too small (containers). Otherwise the true "
        "error stands above, printed by the worker.",
        "num_workers=0 shows the true line; then fewer workers, smaller batches, in a container --shm-size=2g or "
        "--ipc=host.",
        "04",
    ),
    Known(
        "main_guard",
        "A script starts processes while it is imported",
        (
            (
                r"An attempt has been made to start a new process before the current process has finished",
                "any",
            ),
        ),
        "A spawned process imports the script and meets the line that starts processes again.",
        'Put that line below: if __name__ == "__main__":',
        "06",
    ),
    Known(
        "generator",
        "The random generator is on another device",
        (
            (
                rf"Expected a '(cpu|{GPU})' device type for generator but found '{PLACE}'",
                "1.4 to 2.15",
            ),
            (rf"Expected a '{PLACE}' generator device but found '{PLACE}'", "1.13 to 2.15"),
        ),
        'Mostly torch.set_default_device("cuda") together with a shuffling DataLoader, which shuffles on the CPU.',
        'DataLoader(…, generator=torch.Generator("cuda")), or no default device: name devices where you create.',
        "02",
    ),
    Known(
        "module_prefix",
        "The weights were saved from a wrapper",
        ((r'Unexpected key\(s\) in state_dict: "(module|_orig_mod)\.', "1.1 to 2.15"),),
        "DataParallel and DistributedDataParallel put module. before each name, torch.compile _orig_mod.",
        "Save model.module.state_dict() (compiled: model._orig_mod.state_dict()), or strip the prefix when loading.",
        "06",
    ),
    Known(
        "wrapped_model",
        "The model is wrapped, the weights are not",
        ((r'Missing key\(s\) in state_dict: "(module|_orig_mod)\.', "1.1 to 2.15"),),
        "DataParallel, DistributedDataParallel (module.) and torch.compile (_orig_mod.) rename the model's weights.",
        "Load before wrapping, or into model.module; where torch.compile wrapped it, into model._orig_mod.",
        "06",
    ),
    Known(
        "state_dict",
        "The weights do not fit the model",
        (
            (
                r"(Error\(s\) in loading state_dict for \w+|\A\W*(Missing|Unexpected) key\(s\) in state_dict):"
                r'(?!(.*key\(s\) in state_dict:)? "(module|_orig_mod)\.)',
                "1.1 to 2.15",
            ),
        ),
        "The file came from a model with other layers, names or sizes.",
        "Build the model with the settings it was saved with, then compare the names that the message lists.",
        "04",
    ),
    Known(
        "data_parallel",
        "DataParallel's model is not on its first GPU",
        ((r"module must have its parameters and buffers on device", "1.1 to 2.15"),),
        "DataParallel expects the model on device_ids[0], which is cuda:0 unless you say otherwise.",
        'model.to("cuda:0") before it is wrapped, or device_ids=[1, …].',
        "06",
    ),
    Known(
        "events",
        "Two events cannot be compared yet",
        (
            (r"Both events must be recorded before", "1.1 to 2.15"),
            (r"Both events must be (created with argument|completed before)", "2.8 to 2.15"),
        ),
        "Events keep time only with enable_timing=True, and only once the device has passed both.",
        "torch.cuda.Event(enable_timing=True); end.synchronize() before start.elapsed_time(end).",
        "07",
    ),
    Known(
        "sync_mode",
        "A hidden wait, found",
        ((r"called a synchronizing CUDA operation", "1.13 to 2.15"),),
        "torch.cuda.set_sync_debug_mode is on, and this line makes the CPU wait for the GPU.",
        "Keep the value on the GPU (torch.where instead of if), or switch the mode off around this line.",
        "07",
    ),
    Known(
        "pinning",
        "Only tensors of the CPU can be pinned",
        ((r"only dense CPU tensors can be pinned|only CPU memory can be pinned", "1.1 to 2.15"),),
        "pin_memory() was called on a tensor that is on a GPU already, often inside a Dataset.",
        "Keep the data on the CPU and let DataLoader(pin_memory=True) pin it.",
        "04",
    ),
    Known(
        "old_amp",
        "An older form of mixed precision",
        ((r"torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", "2.4 to 2.15"),),
        "Only a warning: torch.cuda.amp was replaced by torch.amp, which takes the device.",
        'torch.amp.autocast("cuda"), torch.amp.GradScaler("cuda").',
        "04",
    ),
    Known(
        "unscale",
        "The scaler found gradients in FP16",
        ((r"Attempting to unscale FP16 gradients", "any"),),
        "The model itself is in FP16, for example after model.half(); a scaler needs weights and gradients in FP32.",
        "Leave the model in FP32 and compute the loss under torch.autocast.",
        "04",
    ),
    Known(
        "label_dtype",
        "Labels or indices are not whole numbers",
        (
            (r"expected scalar type (Long|Int) but found \w+", "any"),
            (r"expected target dtype to be Long", "2.15"),
            (r"argument #\d+ 'indices' to have one of the following scalar types", "any"),
        ),
        "Cross-entropy and embeddings take class numbers as int64.",
        "y = y.long().",
        "04",
    ),
    Known(
        "two_dtypes",
        "Two number formats met",
        (
            (
                r"(Input|bias) type \((c10::)?\w+\) and (weight|bias) type \((c10::)?\w+\) should be the same",
                "1.7 to 2.15",
            ),
            (
                rf"Input type \(({ON_GPU}\) and (weight|bias) type \({ON_GPU}|{ON_CPU}\) and (weight|bias) type \({ON_CPU})\) "
                r"should be the same",
                "1.1 to 2.15",
            ),
            (r"mat1 and mat2 must have the same dtype", "1.13 to 2.15"),
            (r"expected m1 and m2 to have the same dtype", "2.4 to 2.15"),
            (r"expected scalar type (?!(?:Long|Int) but)\w+ but found \w+", "1.1 to 2.15"),
        ),
        "The devices agree, the formats do not: for example a model in FP16 and an input in FP32.",
        "x.to(weight.dtype); or leave the model in FP32 and use torch.autocast.",
        "04",
    ),
    Known(
        "mixed_apis",
        "Two ways to set TF32 were mixed",
        ((r"mix of the legacy and new APIs", "any"),),
        "fp32_precision was set, and allow_tf32 or get_float32_matmul_precision() was asked afterwards.",
        'Use one of the two in a program: torch.backends.cuda.matmul.fp32_precision = "tf32", or the older calls.',
        "90",
    ),
    Known(
        "shapes",
        "A layer got another number of features than it was built for",
        ((r"mat1 and mat2 shapes cannot be multiplied", "any"),),
        "In (64x12 and 13x10), the input has 12 features and the layer takes 13; often images of another size.",
        "Print x.shape before the layer: its last number must be in_features.",
        "03",
    ),
    Known(
        "backward_twice",
        "backward() met a graph that was used already",
        ((r"Trying to backward through the graph a second time", "any"),),
        "backward() frees its graph. A second call, or a tensor carried over from an earlier step, leads back to it.",
        "Compute the loss anew in each step, and detach() what the next step takes over.",
        "04",
    ),
    Known(
        "triton",
        "torch.compile finds no Triton",
        ((r"Cannot find a working triton installation", "any"),),
        "torch.compile writes code for GPUs with Triton, which is not installed or too old.",
        "On Linux install PyTorch again in a fresh environment, which brings it; elsewhere go without torch.compile.",
        "08",
    ),
    Known(
        "mps_float64",
        "Apple's GPUs have no FP64",
        ((r"Cannot convert a (MPS Tensor to float64|float64 Tensor to MPS)", "2.11"),),
        "NumPy's default is float64, and MPS has no such format.",
        "x.to(device, torch.float32).",
        "90",
    ),
    Known(
        "mps_missing",
        "MPS lacks this operation",
        ((r"is not (currently )?implemented for the MPS device", "any"),),
        "Not every operation of PyTorch has code for MPS.",
        "Set PYTORCH_ENABLE_MPS_FALLBACK=1 before Python starts: such operations then run on the CPU.",
        "90",
    ),
    Known(
        "device_name",
        "PyTorch knows no device of that name",
        (
            (r"Invalid device string", "1.7 to 2.15"),
            (r"Expected one of cpu, cuda,.* at start of device string", "any"),
        ),
        'Devices are written "cpu", "cuda", "cuda:0", "mps" or "xpu"; there is no "gpu".',
        'torch.device("cuda:0"), or ask: torch.accelerator.current_accelerator(check_available=True).',
        "90",
    ),
    Known(
        "process_group",
        "The processes do not know of each other",
        (
            (r"Default process group has not been initialized", "1.1 to 2.15"),
            (r"environment variable \w+ expected, but not set", "1.1 to 2.15"),
        ),
        "A script for DistributedDataParallel was started with python, or init_process_group is missing.",
        "Start it with torchrun, and call torch.distributed.init_process_group() first.",
        "06",
    ),
    Known(
        "same_gpu",
        "Two processes took the same GPU",
        ((r"Duplicate GPU detected", "any"),),
        "Each process starts with cuda:0 as its current device.",
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before anything touches CUDA.',
        "06",
    ),
    Known(
        "torchvision",
        "torchvision and torch are not of one build",
        ((r"operator torchvision::\w+ does not exist", "any"),),
        "torchvision came from another index, or for another release of torch.",
        "Install both in one command from one index; never only one of them.",
        "01",
    ),
    Known(
        "practice",
        "Practice GPUs do not imitate this",
        ((r"practice GPUs do not imitate", "any"),),
        "Practice GPUs refuse what they cannot do as hardware does, rather than answer wrongly.",
        "Run it on a real GPU, for example in Colab, or leave it out.",
        "02",
    ),
    Known(
        "not_run",
        "A cell that makes this name has not run",
        ((r"name '\w+' is not defined", "any"),),
        "A kernel knows only what ran since it started; a restart forgets everything. Or the name is misspelled.",
        "Run > Run All Above Selected Cell (Colab: Runtime > Run before), then the cell again.",
        "00",
    ),
    Known(
        "no_module",
        "This Python lacks a package",
        (
            (
                r"No module named '(torch|torchvision|numpy|matplotlib|ipywidgets|tqdm|platformdirs|helpers)'",
                "any",
            ),
        ),
        "The notebook runs in another Python than the one the course was installed into; sys.executable names it.",
        "Colab, Kaggle: run the lesson's first cell. Elsewhere: python3 -m helpers lab (Windows: py -m helpers lab), "
        "or python -m pip install -r requirements.txt, where python is the one that sys.executable names.",
        "00",
    ),
    Known(
        "half_import",
        "An import was broken off",
        (
            (
                r"load module more than once|already has a docstring|single TORCH_LIBRARY can|in dispatch namespace",
                "any",
            ),
        ),
        "An interrupt stopped the import of a package half-way, and what was loaded cannot be loaded again.",
        "Restart the kernel and run the cells again; let the imports end before you interrupt.",
        "00",
    ),
    Known(
        "old_torch",
        "This PyTorch is older than the code",
        (
            (
                r"module 'torch(\.accelerator)?' has no attribute '(accelerator|\w+memory\w*|empty_cache)'",
                "any",
            ),
        ),
        "torch.accelerator came with 2.6, its memory functions with 2.9.",
        "Install PyTorch 2.11 or newer.",
        "90",
    ),
)
