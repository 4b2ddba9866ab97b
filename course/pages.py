"""The lessons of the course, in the order in which they are meant to be read.

The README's table, the lesson map and the links in the notebooks are generated from `LESSONS` and `REFERENCES`.
"""

from dataclasses import dataclass

REPOSITORY = "OWNER_NAME/gpus-in-pytorch"  # set it when the course is published; no account can hold this name


def number_of(file: str) -> str:
    """The number of the page in `file`: "04" or "04b"."""
    return file.partition("_")[0]


@dataclass(frozen=True)
class Lesson:
    """One lesson: `file` in notebooks/, `minutes` with exercises, `practice`: uses practice GPUs where GPUs lack."""

    file: str
    title: str
    minutes: int
    summary: str
    practice: bool = True

    @property
    def number(self) -> str:
        """What its file begins with: "04", or "04b" for the page that goes deeper."""
        return number_of(self.file)


LESSONS = (
    Lesson(
        "00_start_here.ipynb",
        "Start here",
        12,
        "Watch a network learn in seconds, see how much faster a GPU would be, and join a cat on two GPUs",
        practice=False,
    ),
    Lesson(
        "01_check_for_cuda.ipynb",
        "Check for CUDA",
        25,
        "Find out why CUDA is missing, and name the device once",
        practice=False,
    ),
    Lesson(
        "01b_what_a_gpu_is.ipynb",
        "What a GPU is",
        29,
        "Race an RTX 4090, beat it with your CPU, forecast a job and its limit, and fill a scheduler with warps",
    ),
    Lesson(
        "02_move_tensors.ipynb",
        "Move tensors",
        23,
        "Predict where tensors live, move them for good, and port someone else's code to any GPU",
    ),
    Lesson(
        "02b_what_a_copy_costs.ipynb",
        "What a copy costs",
        28,
        "Forecast what a copy costs, find out when that lets a CPU win, and move a nested batch",
    ),
    Lesson(
        "03_put_a_cnn_on_the_gpu.ipynb",
        "Put a CNN on the GPU",
        25,
        "Point into a real network, move it with one call, and find what that call leaves behind",
    ),
    Lesson(
        "03b_when_is_a_gpu_full.ipynb",
        "When is a GPU full?",
        17,
        "Find the batch from which on a GPU is full, measured and by your own formula",
    ),
    Lesson(
        "04_train_and_test.ipynb",
        "Train and test",
        30,
        "Teach a network classes of your own in nine lines, test it, show it a cat, and find four bugs",
    ),
    Lesson(
        "04b_take_it_to_another_machine.ipynb",
        "Take it to another machine",
        21,
        "Bet on a T4, check it on a borrowed one, and resume a run on another machine",
    ),
    Lesson(
        "05_manage_gpu_memory.ipynb",
        "Manage GPU memory",
        21,
        "See what fills the memory, read the message of running out, and fix a leak in a picture of it",
    ),
    Lesson(
        "05b_make_it_fit.ipynb",
        "Make it fit",
        29,
        "Forecast the peak of a step or a LoRA, find the largest batch, and take a step from 5,100 MiB to 282",
    ),
    Lesson(
        "06_use_several_gpus.ipynb",
        "Use several GPUs",
        20,
        "Split a batch by hand, read a sentence that eight ranks hold together, and turn a script into one for every GPU",
    ),
    Lesson(
        "06b_what_a_second_gpu_adds.ipynb",
        "What a second GPU adds",
        30,
        "Write the ring, choose its buckets, and work out what another GPU adds before you rent it",
    ),
    Lesson(
        "07_time_async_work.ipynb",
        "Time asynchronous work",
        23,
        "Catch a clock lying, build an honest one, and take the wait out of a training loop",
    ),
    Lesson(
        "07b_read_a_timeline.ipynb",
        "Read a timeline",
        26,
        "See what a GPU waits for in real timelines, and say which of five limits a step has",
    ),
    Lesson(
        "08_find_the_limit.ipynb",
        "Find the limit",
        24,
        "Find what limits a step by three tests, cure it, and watch the next limit appear",
    ),
    Lesson(
        "08b_move_fewer_bytes.ipynb",
        "Move fewer bytes",
        22,
        "Draw a roofline, train in 16 bits, check the answers, and forecast the step on another card",
    ),
    Lesson(
        "08c_compile_and_replay.ipynb",
        "Compile and replay",
        20,
        "Count what torch.compile captures, replay a step as a CUDA graph, and work out MFU",
    ),
    Lesson(
        "09_attention.ipynb",
        "Write attention by hand",
        23,
        "Take a tiny GPT apart, see what attention's matrix costs, and write attention yourself",
    ),
    Lesson(
        "09b_how_fast_can_it_write.ipynb",
        "How fast can it write?",
        25,
        "Write a KV cache, and know how fast a card can write before you rent it",
    ),
    Lesson(
        "10_shard_a_model.ipynb",
        "Shard a model",
        30,
        "Train a model too large for one GPU: count its bytes, and write FSDP",
    ),
    Lesson(
        "10b_plan_a_cluster.ipynb",
        "Plan a cluster",
        23,
        "Find out when one more GPU stops helping, and plan two clusters",
        practice=False,
    ),
    Lesson(
        "11_write_a_kernel.ipynb",
        "Write a kernel",
        52,
        "Write Triton kernels up to flash attention, and see from their addresses what they touch",
        practice=False,
    ),
    Lesson(
        "12_threads_and_memory.ipynb",
        "Threads and memory",
        28,
        "Write CUDA C, and load a twentieth: count the sectors of a warp, and share tiles",
        practice=False,
    ),
    Lesson(
        "12b_banks_registers_occupancy.ipynb",
        "Banks, registers, occupancy",
        29,
        "Find bank conflicts, spills and occupancy's trap, without a GPU",
        practice=False,
    ),
    Lesson(
        "13_recorded_patients.ipynb",
        "Recorded patients",
        30,
        "Diagnose seven GPUs, each recorded at work, from a timeline and a number",
        practice=False,
    ),
    Lesson(
        "13b_programs_that_go_wrong.ipynb",
        "Programs that go wrong",
        21,
        "Repair a hang, endless recompiling, a loss that changes and a NaN, without a GPU",
        practice=False,
    ),
    Lesson(
        "14_port_a_project.ipynb",
        "Port a project",
        92,
        "Port an unknown program with ten mistakes to any GPU and to two, and take home a report of your own",
    ),
)

REFERENCES = (  # to look things up in: no minutes, no exercises
    Lesson(
        "90_cheat_sheet.ipynb",
        "Cheat sheet",
        0,
        "Ten lines that train on any device; the same task on CUDA, `torch.accelerator`, MPS, XPU and the CPU",
    ),
    Lesson(
        "91_troubleshooting.ipynb",
        "Troubleshooting",
        0,
        "Paste an error message, get cause and fix; every common error raised, read and fixed",
    ),
    Lesson(
        "92_glossary.ipynb",
        "Glossary",
        0,
        "Each term in a sentence, with the place where you see it at work",
        practice=False,
    ),
    Lesson(
        "93_kernel_puzzles.ipynb",
        "Kernel puzzles",
        0,
        "Twelve kernels to write, from one line to flash attention, each with a picture of what it touched, and par",
        practice=False,
    ),
)
NOTEBOOKS = LESSONS + REFERENCES

BLOCKS = {  # as the map in 00, README and INSTRUCTORS show them
    "The path": "what using a GPU takes",
    "Deeper": "each continues the page with its number, one floor down",
    "Beyond": "speed, size, kernels, diagnosis, and a final",
    "To look things up": "and puzzles",
}

PLANS = {  # of a class: what it teaches, and its pages
    "two hours, first steps": ("00", "01", "02"),
    "four hours, use one GPU": ("00", "01", "02", "03", "04", "07"),
    "half a day, use a GPU": tuple(f"0{page}" for page in range(8)),
    "eight hours, and know what it costs": (
        *(f"0{page}" for page in range(8)),
        *("02b", "05b", "06b", "07b"),
    ),
    "a day, make it fast": ("07b", "08", "08b", "08c", "09", "09b"),
    "a day, large models": ("05b", "06b", "09", "10", "10b"),
    "a day, kernels": ("11", "12", "12b", "93"),
}
IN_A_GROUP = 1.25  # times the minutes of one learner


def blocks() -> dict[str, list[Lesson]]:
    """Return {name of a block: its pages, in order}."""
    found: dict[str, list[Lesson]] = {name: [] for name in BLOCKS}
    path, deeper, beyond, lookup = found.values()
    for page in NOTEBOOKS:
        number, letter = page.number[:2], page.number[2:]
        early = deeper if letter else path
        place = lookup if page in REFERENCES else beyond if number > "07" else early
        place.append(page)
    return found
