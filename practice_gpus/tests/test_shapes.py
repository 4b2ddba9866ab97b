"""`values=False`: programs run on shapes alone, and every answer but the values is as before."""

import copy
import io
import pickle
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from practice_gpus import practice_gpus

GIB = 1 << 30


class Block(nn.Module):
    """A block of a transformer, in the manner of Llama: no biases, RMSNorm, SwiGLU."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Transformer(nn.Module):
    """With the sizes of Llama 2 7B unless told otherwise."""

    def __init__(self, words=32_000, width=4096, hidden=11_008, layers=32, heads=32, saves=False):
        super().__init__()
        self.saves = saves
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.saves else block(x)
        return self.head(self.norm(x))


def step(model, optimizer, tokens):
    """A training step."""
    logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def seven_billion(saves=False):
    """(model, optimizer, tokens) in bfloat16 on a practice GPU."""
    with torch.device("cuda"):
        model = Transformer(saves=saves).bfloat16()
        tokens = torch.randint(32_000, (1, 2048))
    return model, torch.optim.AdamW(model.parameters()), tokens


SEVEN_BILLION = """
    import re, time
    from pathlib import Path
    import torch
    from practice_gpus import practice_gpus
    from test_shapes import seven_billion, step

    start = time.perf_counter()
    with practice_gpus(1, memory="96 GiB", values=False):
        step(*seven_billion())
        print(time.perf_counter() - start, torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")  # getrusage would count the process that started this one
    print(1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) if status.exists() else 0)
"""


@pytest.mark.slow
def test_a_step_of_seven_billion_parameters_in_seconds_and_without_their_memory():
    code = textwrap.dedent(SEVEN_BILLION)
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak, resident = map(float, run.stdout.split())
    # Embedding and head; in each block qkv, out, gate, up, down and two norms; the last norm.
    parameters = 2 * 32_000 * 4096 + 32 * (4 * 4096**2 + 3 * 4096 * 11_008 + 2 * 4096) + 4096
    assert parameters == 6_738_415_616
    # The peak is in the optimizer's step, when the activations are gone: parameters, gradients, two moments, and the
    # square roots of the second moments, which the foreach code makes for all parameters at once; two bytes each.
    assert peak == pytest.approx(5 * 2 * parameters, rel=0.03)
    assert seconds < 30
    assert resident < 1.5 * GIB


def test_the_activations_of_a_block_are_those_that_can_be_counted_by_hand():
    width, hidden, heads, tokens = 512, 1408, 8, 1024
    with practice_gpus(1, memory="4 GiB", values=False):
        block = Block(width, heads, hidden).cuda().bfloat16()
        x = torch.randn(1, tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        before = torch.cuda.memory_allocated()
        out = block(x)
        held = torch.cuda.memory_allocated() - before
    # What the backward pass needs, two bytes each, `x` itself not counted: the results of both norms (inputs of qkv, and
    # of gate and up), q, k and v in one, attention (input of out), x + out (input of the second norm); the gate,
    # silu(gate), up and their product (input of down); then the result of the block.
    wide = 1 + 3 + 1 + 1 + 1 + 1
    deep = 4
    by_hand = 2 * tokens * (width * wide + hidden * deep)
    assert held == pytest.approx(by_hand, rel=0.03)
    assert out.shape == x.shape


def test_says_that_seven_billion_do_not_fit_on_24_gb():
    with (
        practice_gpus(1, memory="24 GiB", values=False),
        pytest.raises(torch.OutOfMemoryError, match="24.00 GiB of which"),
    ):
        step(*seven_billion(saves=True))


def small_step():
    """A step of everything that training takes; what the program can ask afterwards."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(100, 32), layer, nn.Dropout(0.1), nn.Linear(32, 100)).cuda()
    convolution = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    convolution.cuda()
    optimizer = torch.optim.AdamW([*model.parameters(), *convolution.parameters()])
    scaler = torch.amp.GradScaler("cuda", init_scale=1.0)
    tokens = torch.randint(100, (2, 16)).cuda(non_blocking=True)
    for _ in range(3):
        with torch.autocast("cuda", dtype=torch.float16):
            logits = checkpoint(model, tokens, use_reentrant=False)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            loss = loss + convolution(torch.randn(4, 3, 16, 16, device="cuda")).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    twin = copy.deepcopy(model)
    return (
        str(loss.device),
        loss.dtype,
        [(p.shape, p.dtype, p.stride(), str(p.device)) for p in twin.parameters()],
        torch.cuda.memory_stats(),
    )


def test_answers_all_but_the_values_as_with_them():
    answers = []
    for values in (True, False):
        with practice_gpus(1, values=values) as gpus:
            answer = small_step()
            answers.append((*answer, gpus.synchronizations, gpus.transfers))
    assert answers[0] == answers[1]


def test_tensors_take_no_memory_of_the_cpu():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with practice_gpus(1, memory="80 GiB", values=False):
        x = torch.randn(10, GIB, device="cuda")
        y = torch.empty_like(x[5:]).normal_().mul_(2)
        assert torch.cuda.memory_allocated() == 60 * GIB
        with pytest.raises(torch.OutOfMemoryError):
            y @ x[:5].T.contiguous()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_a_module_is_moved_and_stays_the_same():
    with practice_gpus(1, values=False):
        model = nn.Linear(3, 3)
        weight = model.weight
        assert model.cuda().weight is weight
        assert weight.is_cuda
        there = nn.Linear(3, 3, device="meta").to_empty(device="cuda")
        assert str(there.weight.device) == "cuda:0"


READS = {
    "item": lambda x: x.sum().item(),
    "if": lambda x: bool(x.sum() > 0),
    "format": lambda x: f"{x.sum():.3f}",
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(force=True),
    "cpu": lambda x: x.cpu(),
    "into the CPU": lambda x: torch.empty(3, 4).copy_(x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "save": lambda x: torch.save(x, io.BytesIO()),
    "pickle": lambda x: pickle.dumps(x),
    "storage": lambda x: x.untyped_storage().tolist(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_reads_values_names_its_line_or_takes_what_stands_in(read):
    line = read.__code__.co_firstlineno
    with (
        practice_gpus(1, values=False),
        pytest.raises(NotImplementedError, match=rf"test_shapes.py:{line}: .* needs values"),
    ):
        read(torch.ones(3, 4, device="cuda"))
    with practice_gpus(1, values=False, stand_in=1.0):
        stood_in = read(torch.ones(3, 4, device="cuda"))
    with practice_gpus(1):
        computed = read(torch.ones(3, 4, device="cuda"))
    assert type(stood_in) is type(computed)
    if isinstance(stood_in, torch.Tensor):
        assert stood_in.shape == computed.shape
        assert stood_in.device.type == computed.device.type or stood_in.is_cpu


def test_a_function_says_what_stands_in():
    def half(x):
        return torch.arange(x.numel()) % 2

    with practice_gpus(1, values=False, stand_in=half):
        assert torch.ones(10, device="cuda").nonzero().shape == (5, 1)
        assert torch.ones(4, device="cuda").tolist() == [0, 1, 0, 1]


def test_tensors_of_the_cpu_keep_their_values():
    with practice_gpus(1, values=False):
        x = torch.arange(3.0)
        x.cuda().add_(1)
        assert x.tolist() == [0, 1, 2]
        assert (x * 2).sum().item() == 6


REFUSED = {
    "sparse": lambda x: torch.sparse_coo_tensor(torch.ones(1, 3).long().cuda(), x[0], (3,)) * 2,
    "trace": lambda x: torch.jit.trace(lambda y: y.add_(1), (x,)),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_needs_values_throughout_is_refused_in_words(call):
    with practice_gpus(1, values=False), pytest.raises(NotImplementedError, match="give values=Tr"):
        call(torch.ones(3, 3, device="cuda"))


def test_wrong_shapes_are_refused_in_pytorchs_words():
    with practice_gpus(1, values=False):
        with pytest.raises(RuntimeError, match="to have 3 channels, but got 4 channels instead"):
            F.conv2d(torch.ones(1, 4, 8, 8).cuda(), torch.ones(2, 3, 3, 3).cuda())
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            nn.Linear(3, 4).cuda()(torch.ones(2, 5).cuda())


@pytest.mark.parametrize(
    "stand_in, error", [("1", TypeError), ([1], TypeError)], ids=["text", "list"]
)
def test_a_stand_in_that_does_not_fit(stand_in, error):
    with pytest.raises(error, match="stand_in="):
        practice_gpus(1, values=False, stand_in=stand_in)
    with pytest.raises(ValueError, match="there are values"):
        practice_gpus(1, stand_in=1.0)


def test_an_operator_that_ran_before_still_answers_by_its_inputs():
    """Results are remembered by how inputs look: another size, layout, dtype or option must not get an old answer."""
    with practice_gpus(1, values=False):
        x = torch.empty(4, 6, device="cuda")
        cube = torch.empty(2, 4, 6, 6, device="cuda")
        for _ in range(2):
            assert (x + 1).shape == (4, 6) and (x[:2] + 1).shape == (2, 6)
            assert (x.t() + 1).stride() == (1, 6)
            assert x.sum(0, keepdim=True).shape == (1, 6) and x.sum(0, keepdim=False).shape == (6,)
            assert (x.long() + 1).dtype == torch.int64 and (x.long() + 1.0).dtype == torch.float32
            assert x.contiguous() is x and x.t().contiguous() is not x
            assert torch._foreach_norm([x])[0].dtype == torch.float32
            assert torch._foreach_norm([x], 2, dtype=torch.float64)[0].dtype == torch.float64
            last = cube.contiguous(memory_format=torch.channels_last)
            assert torch.nn.functional.hardtanh(last).stride() == last.stride()
            assert torch.nn.functional.hardtanh(cube).stride() == cube.stride()
        torch.set_default_dtype(torch.float64)
        try:
            assert (x.long() / 2).dtype == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
        assert (x.long() / 2).dtype == torch.float32


def test_what_an_operator_refuses_is_refused_each_time():
    with practice_gpus(1, values=False):
        x, y = torch.empty(4, 6, device="cuda"), torch.empty(5, 6, device="cuda")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="must match"):
                x + y
            assert (x + x).shape == (4, 6)
