"""The lessons of the course, in the order in which they are meant to be read.

The README's table, the lesson map and the links in the notebooks are generated from `LESSONS` and `REFERENCES`.
"""

from dataclasses import dataclass

REPOSITORY = "OWNER_NAME/gpus-in-pytorch"  # set it when the course is published; no account can hold this name


@dataclass(frozen=True)
class Lesson:
    """One lesson: `file` in notebooks/, `minutes` with exercises, `practice`: uses practice GPUs where GPUs lack."""

    number: str
    file: str
    title: str
    minutes: int
    summary: str
    practice: bool


LESSONS = (
    Lesson(
        "00",
        "00_start_here.ipynb",
        "Start here",
        8,
        "How a lesson works, what this machine has, and a map of all lessons",
        False,
    ),
    Lesson(
        "01",
        "01_check_for_cuda.ipynb",
        "Check for CUDA",
        40,
        "What a GPU is, whether PyTorch can use yours, why not, and how to fix it",
        False,
    ),
    Lesson(
        "02",
        "02_move_tensors.ipynb",
        "Move tensors",
        60,
        "Put tensors on a device, move them, and know what a move costs",
        True,
    ),
    Lesson(
        "03",
        "03_put_a_cnn_on_the_gpu.ipynb",
        "Put a CNN on the GPU",
        52,
        "Build a convolutional network that runs on every device, and see what moves with it",
        True,
    ),
    Lesson(
        "04",
        "04_train_and_test.ipynb",
        "Train and test",
        78,
        "Train a network on images, test it without needless waits, save it and load it anywhere",
        True,
    ),
    Lesson(
        "05",
        "05_manage_gpu_memory.ipynb",
        "Manage GPU memory",
        60,
        "Measure, forecast and shrink what training keeps in memory, and recover when it runs out",
        True,
    ),
    Lesson(
        "06",
        "06_use_several_gpus.ipynb",
        "Use several GPUs",
        53,
        "Split batches over GPUs by hand, with DataParallel and with DistributedDataParallel",
        True,
    ),
    Lesson(
        "07",
        "07_time_async_work.ipynb",
        "Time asynchronous work",
        64,
        "Time work that runs later than its call, and find the hidden waits",
        True,
    ),
    Lesson(
        "08",
        "08_make_it_fast.ipynb",
        "Make it fast",
        79,
        "Speed up a training loop one measured change at a time, and compare it with the machine's limits",
        False,
    ),
)

REFERENCES = (  # to look things up in: no minutes, no exercises
    Lesson(
        "90",
        "90_cheat_sheet.ipynb",
        "Cheat sheet",
        0,
        "The same task on CUDA, `torch.accelerator`, MPS, XPU and the CPU, call by call",
        True,
    ),
    Lesson(
        "91",
        "91_troubleshooting.ipynb",
        "Troubleshooting",
        0,
        "Paste an error message, get cause and fix; every common error raised, read and repaired",
        True,
    ),
    Lesson(
        "92",
        "92_glossary.ipynb",
        "Glossary",
        0,
        "Each term in a sentence, with the lesson that explains it",
        False,
    ),
)
NOTEBOOKS = LESSONS + REFERENCES


def lesson(number):
    """The `Lesson` with this `number`, for example "04"; ValueError lists the numbers there are."""
    for each in LESSONS:
        if each.number == number:
            return each
    raise ValueError(f"number is {number!r}; it takes one of {[each.number for each in LESSONS]}")
