"""Half-solutions of lesson 14: the model solution with one sin left in, and the line that the judge has to name."""

import atexit
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from answers import given
from course.lesson14.judge import SOLUTION


@dataclass(frozen=True)
class Half:
    """`edits`: (file, text, what stands there instead); `criterion` fails, and names the line of `file` with `line`."""

    criterion: str
    file: str
    line: str
    says: str
    edits: tuple

    @property
    def place(self):
        """The line as "train.py:41"."""
        lines = (folder(self) / self.file).read_text().splitlines()
        [number] = [n for n, text in enumerate(lines, 1) if self.line in text]
        return f"{self.file}:{number}"


@functools.cache
def folder(half):
    """Write a half-solution, and return its folder."""
    above = Path(tempfile.mkdtemp(prefix="half"))
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    copy = above / "birdcalls"
    shutil.copytree(SOLUTION, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text, instead in half.edits:
        before = (copy / file).read_text()
        assert before.count(text) == 1, (file, text, before.count(text))
        (copy / file).write_text(before.replace(text, instead))
    return copy


RATIO = "waves = waves / peak.clamp(min=1)"
MASKED = "waves[peak[:, 0] > 1] = waves[peak[:, 0] > 1] / peak[peak[:, 0] > 1]"
BATCHED = """        frames = waves.unfold(1, WIDTH, HOP) * self.window
        loudness = (frames @ self.cosines) ** 2 + (frames @ self.sines) ** 2
        return torch.log1p(loudness) / 2
"""
LOOP = """        pictures = []
        for wave in waves:
            frames = wave.unfold(0, WIDTH, HOP) * self.window
            loudness = (frames @ self.cosines) ** 2 + (frames @ self.sines) ** 2
            pictures.append(torch.log1p(loudness) / 2)
        return torch.stack(pictures)
"""
HALVES = {
    "plain attribute": Half(
        "device",
        "model.py",
        "* self.window",
        "self.window: cpu",
        (
            (
                "model.py",
                'self.register_buffer("window", torch.hann_window(WIDTH), persistent=False)',
                "self.window = torch.hann_window(WIDTH)",
            ),
        ),
    ),
    "made on the CPU": Half(
        "device",
        "model.py",
        "torch.arange(x.shape[1])",
        "same device",
        (("model.py", "torch.arange(x.shape[1], device=x.device)", "torch.arange(x.shape[1])"),),
    ),
    "hard-coded": Half(
        "device",
        "train.py",
        'model = Net(config).to("cuda")',
        "without a GPU",
        (("train.py", "model = Net(config).to(device)", 'model = Net(config).to("cuda")'),),
    ),
    "printed in each step": Half(
        "waits",
        "train.py",
        'print(f"{losses[-1].item()',
        "losses[-1].item()",
        (
            (
                "train.py",
                "optimizer, scaler))\n",
                'optimizer, scaler))\n        print(f"{losses[-1].item():.3f}")\n',
            ),
        ),
    ),
    "chosen by a mask": Half(
        "waits", "model.py", MASKED, "how many are chosen", (("model.py", RATIO, MASKED),)
    ),
    "keeps the graph": Half(
        "memory",
        "train.py",
        "losses.append(",
        "`losses` keeps tensors of each step",
        (
            (
                "train.py",
                "scaler.scale(loss).backward()",
                "scaler.scale(loss).backward(retain_graph=True)",
            ),
            ("train.py", "return loss.detach()", "return loss"),
        ),
    ),
    "a test with graphs": Half(
        "memory",
        "evaluate.py",
        "scores.append(",
        "activations take",
        (("evaluate.py", "@torch.no_grad()\n", ""),),
    ),
    "clip by clip": Half(
        "speed", "model.py", "loudness = ", "in the loop", (("model.py", BATCHED, LOOP),)
    ),
    "float32": Half(
        "speed",
        "train.py",
        "model(waves)",
        "multiplies in float32",
        (("train.py", "enabled=on_gpu", "enabled=False"),),
    ),
    "the same clips": Half(
        "two",
        "train.py",
        "for waves, labels in",
        "the same clips",
        (("train.py", "training_batches(config, RANK, RANKS)", "training_batches(config)"),),
    ),
    "a layer without a use": Half(
        "two",
        "model.py",
        "self.head_of_2023 =",
        "gets no gradient",
        (
            (
                "model.py",
                '    def forward(self, waves):\n        """Return scores',
                "        self.head_of_2023 = nn.Linear(config.channels * BANDS, 4)\n\n"
                '    def forward(self, waves):\n        """Return scores',
            ),
        ),
    ),
    "nobody averages": Half(
        "two",
        "train.py",
        "scaler.step(optimizer)",
        "no gradient is averaged",
        (("train.py", "        model = DistributedDataParallel(model)\n", ""),),
    ),
    "one GPU for both": Half(
        "two",
        "train.py",
        "torch.cuda.set_device(0)",
        "both processes use cuda:0",
        (("train.py", 'int(os.environ.get("LOCAL_RANK", 0))', "0"),),
    ),
    "half the clips": Half(
        "loss",
        "train.py",
        "for waves, labels in",
        "other clips than before",
        (
            (
                "data.py",
                "zip(waves.split(config.batch), labels.split(config.batch), strict=True)",
                "zip(waves.split(config.batch // 2), labels.split(config.batch // 2), strict=True)",
            ),
        ),
    ),
    "bfloat16 on a T4": Half(
        "speed",
        "train.py",
        "model(waves)",
        "multiplies in bfloat16",
        (("train.py", "torch.float16", "torch.bfloat16"),),
    ),
    "another rate": Half(
        "loss",
        "train.py",
        "scaler.step(optimizer)",
        "it was",
        (("train.py", "lr=config.learning_rate", "lr=config.learning_rate / 10"),),
    ),
}


def half(name):
    """Return one of the half-solutions as a wrong answer to an exercise."""
    return given(HALVES[name].says, str(folder(HALVES[name])))


WRONG = {
    "device": (half("plain attribute"), half("half the clips")),
    "memory": (half("printed in each step"), half("keeps the graph")),
    "speed": (half("float32"), half("bfloat16 on a T4")),
    "two": (half("the same clips"), given("no folder with a train.py", "my_port")),
}
