"""Forecasts of times: numbers that can be worked out by hand, on shapes alone."""

import json
import time

import pytest
import torch
from torch.nn import functional as F

from practice_gpus import practice_gpus
from practice_gpus.cards import CARDS, TABLE, get_card
from practice_gpus.clock import work
from practice_gpus.clock.cpu import ISSUE, LEAST, MOST
from practice_gpus.clock.kernel_times import (
    CACHED,
    COMPUTE,
    CONVOLUTION,
    DEPTHWISE,
    DEPTHWISE_A100,
    DIRECT,
    MEMORY,
    SHORTEST,
    WINOGRAD,
)

MIB = 1 << 20


@pytest.fixture
def gpus():
    with practice_gpus(1, card="A100 40", values=False, stand_in=1.0) as session:
        yield session


def net(width=1024, depth=6):
    layers = [[torch.nn.Linear(width, width), torch.nn.ReLU()] for _ in range(depth)]
    return torch.nn.Sequential(*[layer for pair in layers for layer in pair]).cuda()


def empty(*shape, **options):
    return torch.empty(*shape, device="cuda", **options)


def only(forecast):
    """The kernel of a forecast that has one."""
    (kernel,) = forecast.kernels
    return kernel


def test_a_large_addition_takes_as_long_as_its_bytes(gpus):
    """Else memory-bound work would be forecast wrong."""
    x = empty(256 * MIB)
    kernel = only(gpus.forecast(lambda: x + x))
    assert kernel.bytes == 3 * x.nbytes  # it is read as each argument, and a result is written
    assert kernel.ms == pytest.approx(1e3 * kernel.bytes / (MEMORY * 1555e9))
    assert kernel.bound == "memory"


def test_a_large_product_takes_as_long_as_its_operations(gpus):
    """Else compute-bound work would be forecast wrong, or TF32 counted where a product has none."""
    x = empty(4096, 4096)
    kernel = only(gpus.forecast(lambda: x @ x))
    assert kernel.flops == 2 * 4096**3
    assert kernel.ms == pytest.approx(1e3 * kernel.flops / (COMPUTE * 19.5e12), rel=0.01)
    half = x.half()
    faster = only(gpus.forecast(lambda: half @ half))
    assert kernel.ms / faster.ms == pytest.approx(312 / 19.5)


def test_a_product_of_few_tiles_leaves_multiprocessors_idle(gpus):
    """Else small batches would be forecast as fast as a card that is full."""
    small, long = empty(1024, 1024), empty(1024, 64 * 1024)
    forecast = gpus.forecast(lambda: small @ small)  # 128 tiles: one wave of 108, one of 20
    full = 2 * 1024**3 / (COMPUTE * 19.5e12)
    assert only(forecast).ms == pytest.approx(1e3 * full * 216 / 128)
    assert only(forecast.on("RTX 4090")).ms == pytest.approx(2e3 * 1024**3 / (COMPUTE * 82.6e12))
    split = only(gpus.forecast(lambda: long @ long.T))  # its sums are divided among them
    assert split.ms == pytest.approx(64e3 * full, rel=0.02)


def test_a_depthwise_convolution_is_no_product_of_matrices(gpus):
    """Else MobileNet and EfficientNet would be forecast several times too fast on cards with fast memory."""
    layer = torch.nn.Conv2d(512, 512, 5, groups=512, bias=False).cuda()
    x = empty(16, 512, 64, 64)
    kernel = only(gpus.forecast(lambda: layer(x)))
    assert kernel.ms == pytest.approx(1e3 * kernel.flops / (DEPTHWISE_A100 * 19.5e12))
    there = only(gpus.forecast(lambda: layer(x)).on("H100 SXM"))
    assert there.ms == pytest.approx(1e3 * kernel.flops / (DEPTHWISE * 67e12))
    x.requires_grad_()
    names = [each.name for each in gpus.forecast(lambda: layer(x).sum().backward()).kernels]
    assert sum("depthwise" in name for name in names) == 3


def test_float32_convolutions_use_tf32_from_ampere_on(gpus):
    """Else image networks in float32 would look eight times slower than they are on an A100."""
    layer = torch.nn.Conv2d(512, 512, 3, bias=False).cuda()
    x = empty(64, 512, 32, 32).to(memory_format=torch.channels_last)
    forecast = gpus.forecast(lambda: layer(x))
    flops = only(forecast).flops
    assert only(forecast).ms == pytest.approx(1e3 * flops / (CONVOLUTION * 156e12), rel=0.03)
    there = only(forecast.on("V100"))
    assert there.ms == pytest.approx(1e3 * flops / (WINOGRAD * 15.7e12), rel=0.03)


def test_without_tensor_cores_small_filters_take_fewer_multiplications_than_others(gpus):
    """Else VGG on a V100 would be forecast at nearly twice its time, and the first layer of a ResNet too fast."""
    x = empty(64, 512, 32, 32, requires_grad=True)
    filters = {"3": {}, "3 by 2": {"stride": 2}, "3, groups": {"groups": 4}, "5": {}}
    for name, options in filters.items():
        layer = torch.nn.Conv2d(512, 512, int(name[0]), bias=False, **options).cuda()
        step = gpus.forecast(lambda layer=layer: layer(x).sum().backward()).on("V100")
        kernels = [kernel for kernel in step.kernels if kernel.flops]
        share = WINOGRAD if name == "3" else DIRECT
        assert len(kernels) == 3
        for kernel in kernels:
            assert kernel.ms == pytest.approx(1e3 * kernel.flops / (share * 15.7e12), rel=0.1), name


def test_a_kernel_reads_from_the_cache_what_the_one_before_left_there(gpus):
    """Else small batches on cards with a large L2 would be forecast at nearly twice their time."""
    small, large = empty(4 * MIB), empty(256 * MIB)  # floats
    for x, card, faster in (
        (small, "L4", CACHED),
        (small, "A100 40", 1),
        (small, "T4", 1),
        (large, "L4", 1),
    ):
        step = gpus.forecast(lambda x=x: x.neg().neg()).on(card)
        first, second = (kernel.ms for kernel in step.kernels)
        assert second / first == pytest.approx((1 + 1 / faster) / 2), card


def test_tiny_kernels_are_bound_by_the_cpu_and_given_as_a_range(gpus):
    """Else a loop over tiny kernels would get one number that depends on the learner's CPU."""
    x = empty(64)

    def step():
        for _ in range(100):
            x.mul(2)

    forecast = gpus.forecast(step)
    assert forecast.bound == "overhead"
    assert forecast.cause == "launches"
    assert forecast.ms == pytest.approx(1e3 * (100 * ISSUE + SHORTEST))
    assert forecast.low_ms == pytest.approx(1e3 * (100 * LEAST + SHORTEST))
    assert forecast.high_ms == pytest.approx(1e3 * (100 * MOST + SHORTEST))
    assert forecast.graphed.ms == pytest.approx(1e3 * 100 * SHORTEST)


def test_views_are_free_and_expanded_tensors_are_read_once(gpus):
    """Else broadcasting and reshaping would seem to cost memory traffic."""
    x = empty(1024, 1024)
    row = empty(1024).expand(1024, 1024)
    forecast = gpus.forecast(lambda: x.t()[:].add_(row))
    assert only(forecast).bytes == 2 * x.nbytes + 4 * 1024


def test_attention_is_one_kernel_forward_and_one_backward(gpus):
    """Else fused attention would be forecast as slow as attention written out."""
    q = empty(2, 8, 512, 64, dtype=torch.half, requires_grad=True)
    forecast = gpus.forecast(lambda: F.scaled_dot_product_attention(q, q, q, dropout_p=0.1))
    assert [k.name for k in forecast.kernels] == ["scaled_dot_product_attention"]
    assert only(forecast).bytes < 5 * q.nbytes


def test_fused_attention_fills_its_heads_up(gpus):
    """Else Stable Diffusion, with heads of 40 numbers, would be forecast too fast."""
    whole, odd = (torch.empty(1, 8, 4096, width, device="cuda").half() for width in (64, 40))
    times = [
        gpus.forecast(lambda x=x: F.scaled_dot_product_attention(x, x, x)) for x in (whole, odd)
    ]
    assert only(times[0]).ms == only(times[1]).ms


def test_autocast_costs_the_casts_of_its_weights(gpus):
    """Else mixed precision would look free for small batches."""
    model = torch.nn.Linear(4096, 4096, bias=False).cuda()
    x = empty(8, 4096)

    def step():
        with torch.autocast("cuda", torch.float16):
            model(x)

    casts = [k.bytes for k in gpus.forecast(step).kernels if k.name == "_to_copy"]
    assert max(casts) == 6 * 4096**2


def test_backward_of_a_depthwise_convolution_counts_twice_its_forward(gpus):
    """Else the counter of PyTorch makes it 64 times too much, and MobileNets compute-bound."""
    layer = torch.nn.Conv2d(64, 64, 3, groups=64, bias=False).cuda()
    x = empty(8, 64, 32, 32, requires_grad=True)
    forecast = gpus.forecast(lambda: layer(x).sum().backward())
    flops = {k.name: k.flops for k in forecast.kernels if k.flops}
    assert len(set(flops.values())) == 1
    assert list(flops) == [
        "convolution (depthwise)",
        "convolution_backward (depthwise input)",
        "convolution_backward (depthwise weight)",
    ]


def test_flops_of_a_network_are_those_of_pytorchs_counter():
    """Else MFU would not compare with other tools'."""
    from torch.utils.flop_counter import FlopCounterMode

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.Flatten(), torch.nn.LazyLinear(10)
    )
    x = torch.ones(2, 3, 8, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    with practice_gpus(1, card="T4", values=False) as gpus:
        there = model.cuda()
        y = empty(2, 3, 8, 8, requires_grad=True)
        forecast = gpus.forecast(lambda: there(y).sum().backward())
    assert forecast.flops == counter.get_total_flops()


def test_channels_last_saves_the_turning_of_images(gpus):
    """Else lesson 08's channels_last would gain nothing in a forecast."""
    layer = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda().half()
    x = empty(64, 64, 56, 56, dtype=torch.half, requires_grad=True)
    before = gpus.forecast(lambda: layer(x).sum().backward())
    last = layer.to(memory_format=torch.channels_last)
    y = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    after = gpus.forecast(lambda: last(y).sum().backward())
    assert 1.2 < before.ms / after.ms < 2.5


def test_images_are_turned_for_tensor_cores_unless_they_lie_right_or_a_filter_is_one_pixel(gpus):
    """Else an image network in its usual layout would be forecast too fast on an A100, where a trace shows the turning."""

    def ms(kernel_size, card, **layout):
        layer = torch.nn.Conv2d(64, 64, kernel_size, bias=False).cuda()
        x = empty(64, 64, 56, 56).to(**layout)
        return gpus.forecast(lambda: layer(x)).on(card).kernels[0].ms

    turning = 1e3 * 2 * 64 * 64 * 56 * 56 * 4 / (MEMORY * 1555e9)
    last = {"memory_format": torch.channels_last}
    assert ms(3, "A100 40") == pytest.approx(ms(3, "A100 40", **last) + turning, rel=0.05)
    assert ms(1, "A100 40") < ms(1, "A100 40", **last) + turning / 2
    assert ms(3, "V100") <= ms(3, "V100", **last)  # float32 without tensor cores


def test_fused_chains_touch_memory_once(gpus):
    """Else compiling would look useless for memory-bound chains."""
    x = empty(64 * MIB)
    eager = gpus.forecast(lambda: (x * 2).add(1).relu())
    fused = gpus.forecast(lambda: (x * 2).add(1).relu(), fused=True)
    assert eager.bytes == 6 * x.nbytes
    assert fused.bytes == 2 * x.nbytes
    assert fused.ms < eager.ms / 2.5


def test_a_chain_keeps_what_is_read_later(gpus):
    """Else fusing would drop activations that the backward pass needs."""
    x = empty(MIB)

    def step():
        y = x * 2
        z = y + 1
        return z.view(1024, 1024) @ y.view(1024, 1024)

    assert gpus.forecast(step, fused=True).kernels[0].bytes == 3 * x.nbytes


LOOPS = [
    loop if loop in (0, 9) else pytest.param(loop, marks=pytest.mark.slow) for loop in range(10)
]


@pytest.mark.parametrize("loop", LOOPS)
def test_planted_waits_copies_launches_and_starved_queues_are_named(gpus, loop):
    """Else a learner who looks for what slows a loop down would look in the wrong place, or gain another time."""
    width, depth, count = 256 + 64 * loop, 2 + loop % 4, 4 + loop
    model = net(width, depth)
    rows = 4096  # kernels that take longer than their launches
    there = empty(rows, width)
    pageable = torch.empty(rows, width)
    pinned = pageable.pin_memory()
    tiny = empty(32)

    def run(each):
        return gpus.forecast(lambda: [each() for _ in range(count)])

    def mended(forecast):
        return forecast.ms - forecast.gains[forecast.cause]

    clean = run(lambda: model(there))
    waiting = run(lambda: synchronized(model, there))
    assert waiting.cause == "waits"
    assert waiting.waits[0].count == 2 * depth * count
    assert clean.ms < 0.9 * waiting.ms
    assert mended(waiting) == pytest.approx(clean.ms, rel=0.02)
    copied = run(lambda: model(pinned.to("cuda", non_blocking=True)))
    unpinned = run(lambda: model(pageable.to("cuda")))
    assert unpinned.cause == "unpinned copies"
    assert copied.ms < 0.9 * unpinned.ms
    assert mended(unpinned) == pytest.approx(copied.ms)
    assert copied.gains["unpinned copies"] == clean.gains["waits"] == 0
    small = run(lambda: [tiny.mul(2) for _ in range(60)])
    assert (small.bound, small.cause) == ("overhead", "launches")
    assert small.ms == pytest.approx(1e3 * (60 * count * ISSUE + SHORTEST))
    starved = run(lambda: model(torch.ones(32 * MIB)[: rows * width].view(rows, -1).to("cuda")))
    assert starved.cause == "cpu work"
    assert starved.idle > max(clean.idle, 0.2)
    assert mended(starved) == pytest.approx(unpinned.ms, rel=0.02)


def synchronized(model, x):
    """Run the layers of ``model``, and wait for the GPU after each."""
    for layer in model:
        x = layer(x)
        torch.cuda.synchronize()


def test_a_copy_in_another_stream_hides_behind_kernels(gpus):
    """Else prefetching could not be seen to work."""
    model = net(4096)
    batch = torch.empty(4096, 4096).pin_memory()
    side = torch.cuda.Stream()

    def step():
        for _ in range(5):
            with torch.cuda.stream(side):
                batch.to("cuda", non_blocking=True)
            model(empty(4096, 4096))
            torch.cuda.current_stream().wait_stream(side)

    def plain():
        for _ in range(5):
            model(batch.to("cuda", non_blocking=True))

    hidden, shown = gpus.forecast(step), gpus.forecast(plain)
    assert hidden.overlap == pytest.approx(1, abs=0.01)
    assert shown.overlap == pytest.approx(0, abs=0.01)
    assert hidden.ms < shown.ms


def test_a_stream_waits_for_what_it_is_told_to(gpus):
    """Else a forecast would let a kernel use a batch before it is there."""
    x = empty(64 * MIB)
    side = torch.cuda.Stream()
    batch = torch.empty(64 * MIB).pin_memory()

    def step(wait):
        with torch.cuda.stream(side):
            batch.to("cuda", non_blocking=True)
        if wait:
            torch.cuda.current_stream().wait_stream(side)
        x.add_(1)

    early, late = (
        gpus.forecast(lambda wait=wait: step(wait)).kernels[-1] for wait in (False, True)
    )
    assert early.start < 1 < late.start


def test_memory_that_is_not_pinned_makes_the_cpu_wait_even_if_told_not_to(gpus):
    """Else ``non_blocking=True`` alone would seem to be enough."""
    batch = torch.empty(16 * MIB)
    pinned = batch.pin_memory()
    alone = gpus.forecast(lambda: batch.to("cuda", non_blocking=True).add_(1))
    both = gpus.forecast(lambda: pinned.to("cuda", non_blocking=True).add_(1))
    assert alone.cause == "unpinned copies"
    assert alone.waits[0].ms > 1
    assert not both.waits


def test_kernels_and_idle_time_add_up_to_the_step(gpus):
    """Else a timeline would not be the time it claims to explain."""
    model = net(512)
    forecast = gpus.forecast(lambda: model(empty(64, 512)).sum().item(), repeat=3)
    total = sum(kernel.ms for kernel in forecast.kernels) / 3
    # without the copy of the number
    assert total + forecast.idle * forecast.ms == pytest.approx(forecast.ms)
    assert forecast.kernels[0].line.startswith("test_clock.py:")


def test_eight_gpus_wait_for_their_gradients(gpus):
    """Else scaling would look perfect on any link."""
    model = net(2048)
    x = empty(512, 2048)
    forecast = gpus.forecast(lambda: model(x).sum().backward(), card="A100 80")
    fast = forecast.on(gpus=8, gradients=model)
    slow = gpus.forecast(lambda: model(x).sum().backward(), card="RTX 4090")
    assert forecast.ms < fast.ms
    assert slow.on(gpus=8, gradients=model).ms / slow.ms > fast.ms / forecast.ms
    assert forecast.on(gpus=8).ms == fast.ms  # the step itself tells what is trained
    with pytest.raises(ValueError, match="gradients=model"):
        gpus.forecast(lambda: x @ x.t()).on(gpus=8)


def test_events_tell_forecast_times_on_a_machine_with_a_clock():
    """Else the course's own timing would show the CPU's milliseconds as a GPU's."""
    with practice_gpus(1, card="T4", clock=True):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        x = torch.ones(512, 512, device="cuda")
        begin.record()
        y = x @ x
        end.record()
        torch.cuda.synchronize()
        passed = begin.elapsed_time(end)
    assert y[0, 0].item() == 512  # values are real all the same
    flops = 2 * 512**3 * 40 / 32  # 32 tiles on 40 multiprocessors
    assert passed == pytest.approx(1e3 * (ISSUE + flops / (COMPUTE * 0.6 * 8.1e12)), rel=0.1)


def test_the_same_step_on_every_card_for_an_explorer(gpus):
    """Else lessons could not ask "which card?"."""
    x = empty(1024, 1024)
    rows = gpus.forecast(lambda: x @ x).on_cards(["T4", "H200"], {"T4": 0.5}, steps=60_000)
    assert [row["card"] for row in rows] == ["H200 (141 GB)", "T4 (16 GB)"]
    slowest = rows[-1]
    assert slowest["minutes"] == pytest.approx(slowest["ms"])
    assert slowest["usd"] == pytest.approx(0.5 * slowest["minutes"] / 60)
    assert rows[0]["usd"] is None


def test_a_card_from_a_recording_reaches_what_was_recorded(tmp_path, gpus):
    """Else owners of other cards would have no forecast."""
    device = {"name": "My GPU", "kind": "cuda", "memory_bytes": 8 << 30}
    matmul = {"device": "cuda", "size": 4096, "dtype": "float32", "tflop_per_s": 10.0}
    moved = {"device": "cuda", "operation": "copy", "gb_per_s": 200.0}
    path = tmp_path / "my-gpu.json"
    sections = {"matmul": [matmul], "bandwidth": [moved]}
    path.write_text(json.dumps({"devices": {"cuda": device}, "sections": sections}))
    x = empty(4096, 4096)
    forecast = gpus.forecast(lambda: x @ x, card=str(path))
    assert forecast.ms == pytest.approx(2 * 4096**3 / 10e12 * 1e3, rel=0.01)
    path.write_text("{}")
    with pytest.raises(ValueError, match="no recording of a GPU"):
        get_card(str(path))


def test_cards_are_whole_and_name_their_sources():
    """Else a number of a data sheet could be made up."""
    for card in CARDS.values():
        assert card.source.startswith("https://")
        assert card.memory_source.startswith("https://")
        assert card.fp32 <= card.fp16
        assert card.fp64 <= card.fp32
    assert CARDS["RTX 3090 (24 GB)"].fp16 == 71  # with accumulation in float32
    assert CARDS["A10G (24 GB)"].fp16 == 70  # not the A10's 125
    assert CARDS["RTX 4060 (8 GB)"].pcie == CARDS["T4 (16 GB)"].pcie  # 8 lanes of PCIe 4


def test_each_number_of_a_card_says_on_which_page_it_was_read_or_that_none_was_opened():
    """Else nobody could tell a number that was looked up from one that was remembered."""
    for row in json.loads(TABLE.read_text())["cards"]:
        card = CARDS[row["name"]]
        not_read = row["not_read"].split()
        assert not set(not_read) & set(card.read), row["name"]
        assert all(page.startswith("https://") for page in card.read.values())
        rates = [
            unit for unit in ("fp64", "tf32", "fp16", "bf16", "fp8") if row[unit] != row["fp32"]
        ]
        named = ["bandwidth", "watts", "fp32", *rates] + ["nvlink"] * (card.nvlink > 0)
        assert set(named) <= set(not_read) | set(card.read), row["name"]
        assert not not_read or row["note"] or set(not_read) <= {"nvlink", "fp64"}, row["name"]


@pytest.mark.parametrize(
    ("card", "words"),
    [("H10", "did you mean 'H100"), ("A100", "more than one"), ("", "give|Give"), (3, "as text")],
)
def test_an_unknown_card_is_refused_with_the_nearest(gpus, card, words):
    """Else a misspelled card would leave a learner without a list."""
    with pytest.raises(ValueError, match=words):
        gpus.forecast(lambda: empty(3) + 1, card=card)


def test_what_cannot_be_forecast_says_so(gpus):
    """Else a wrong call would give a number, or an error from deep inside."""
    with pytest.raises(ValueError, match="used no practice GPU"):
        gpus.forecast(lambda: torch.ones(3))
    with pytest.raises(TypeError, match="function without arguments"):
        gpus.forecast(3)
    with pytest.raises(ValueError, match="repeat=0"):
        gpus.forecast(lambda: empty(3) + 1, repeat=0)
    with pytest.raises(torch.OutOfMemoryError):
        gpus.forecast(lambda: empty(64 << 30))
    x = empty(3)
    with pytest.raises(ValueError, match="test_clock.py:.*makes the CPU wait"):
        _ = gpus.forecast(lambda: (x + 1).sum().item()).graphed
    with pytest.raises(ValueError, match=r"\.json"):
        gpus.forecast(lambda: x + 1).trace("step.txt")


def test_a_forecast_after_stop_is_refused():
    """Else it would run on the CPU and call that a GPU."""
    session = practice_gpus(1, card="T4").start()
    session.stop()
    with pytest.raises(RuntimeError, match="off"):
        session.forecast(lambda: None)
    with practice_gpus(1) as gpus, pytest.raises(ValueError, match="card=None"):
        gpus.forecast(lambda: None)
    with pytest.raises(ValueError, match="clock=True"):
        practice_gpus(1, clock=True)


def test_an_operator_without_a_rule_is_named(gpus):
    """Else a forecast would hide what it only guesses."""
    x = empty(64, 64)
    assert gpus.forecast(lambda: torch.fft.fft(x)).unknown == ["_fft_r2c"]
    assert gpus.forecast(lambda: x @ x).unknown == []


def test_resnet50_on_shapes_alone_takes_seconds():
    """Else a page that forecasts would not load in time (bar: 5 s on two idle cores)."""
    models = pytest.importorskip("torchvision.models")
    with practice_gpus(1, card="RTX 4090", values=False) as gpus, torch.no_grad():
        model = models.resnet50().cuda().eval()
        x = empty(256, 3, 224, 224)
        begin = time.process_time()
        forecast = gpus.forecast(lambda: model(x))
        assert time.process_time() - begin < 5
    assert forecast.bound == "memory"
    assert 2 < forecast.peak_bytes / (1 << 30) < 4


def test_a_step_over_sparse_tensors_is_forecast():
    """A user's graph network would end in an error of the clock."""
    with practice_gpus(1, card="T4") as gpus:
        edges = torch.eye(64, device="cuda").to_sparse()
        weight = torch.ones(64, 64, device="cuda", requires_grad=True)
        assert gpus.forecast(lambda: torch.mm(edges, weight).sum().backward()).ms > 0


def test_attention_counts_its_multiplications_where_pytorch_has_no_formula_for_them(monkeypatch):
    """PyTorch 2.14 has none for the CPU's kernel: a transformer's forecast would take attention for free."""

    def attend():
        with practice_gpus(1, card="H100 SXM", values=False) as gpus:
            x = torch.empty(2, 4, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            step = lambda: F.scaled_dot_product_attention(x, x, x).sum().backward()  # noqa: E731
            return [kernel.flops for kernel in gpus.forecast(step).kernels]

    expected = attend()
    without = {key: rule for key, rule in work.flop_registry.items() if "for_cpu" not in str(key)}
    monkeypatch.setattr(work, "flop_registry", without)
    assert attend() == expected
    assert max(expected) == 2.5 * 2 * 2 * (2 * 4 * 512 * 512 * 64)  # backward: five matmuls for two
