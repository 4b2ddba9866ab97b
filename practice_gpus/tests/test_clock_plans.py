"""What people ask of a forecast: products of every kind, several GPUs, prices, batches, the CPU that is here."""

import gc
import json
import re
from collections import Counter

import numpy
import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.flop_counter import flop_registry

from practice_gpus import calibrate, practice_gpus
from practice_gpus.cards import find_card, get_card
from practice_gpus.clock import ISSUE, lora, recomputed
from practice_gpus.clock import cpu as clock_cpu
from practice_gpus.clock.products import OURS, PATHS
from practice_gpus.clock.work import known, work

HALF = torch.bfloat16


@pytest.fixture
def gpus():
    with practice_gpus(1, card="H100 SXM", values=False, stand_in=1.0) as session:
        yield session


def empty(*shape, **options):
    return torch.empty(*shape, device="cuda", **options)


A, B, EIGHT = (4, 8), (8, 16), torch.float8_e4m3fn
SAMPLES = {  # operators that PyTorch has a formula for → their arguments, and their result's shape
    "mm": ([torch.empty(A), torch.empty(B)], (4, 16)),
    "addmm": ([torch.empty(16), torch.empty(A), torch.empty(B)], (4, 16)),
    "bmm": ([torch.empty(2, *A), torch.empty(2, *B)], (2, 4, 16)),
    "baddbmm": ([torch.empty(2, 4, 16), torch.empty(2, *A), torch.empty(2, *B)], (2, 4, 16)),
    "_scaled_mm": (
        [torch.empty(A).to(EIGHT), torch.empty(B).to(EIGHT), torch.ones(()), torch.ones(())],
        (4, 16),
    ),
}
# Convolutions and attention are worked out by hand in test_clock.
BY_NAME = ("convolution", "conv2d", "attention")


def test_each_operator_with_a_formula_of_pytorchs_has_a_rule_or_is_named_as_unknown():
    """Else a product would take no time, and nothing would say so, as _grouped_mm did."""
    for packet in flop_registry:
        overload = getattr(packet, "default", None)
        if overload is None:
            continue  # an operator of higher order, which practice GPUs refuse
        name = overload._schema.name.split("::")[1]
        assert name in SAMPLES or any(part in name for part in BY_NAME), f"{name}: give it a sample"
        assert known(overload), name
        if name in SAMPLES:
            args, shape = SAMPLES[name]
            out = torch.empty(shape)
            (found,) = work(overload, args, {}, out)
            assert found.flops == flop_registry[packet](*args, out_val=out) > 0
            assert found.unit == ("fp8" if name == "_scaled_mm" else "fp32")


def grouped():
    a, b = empty(64, 32, dtype=HALF), empty(4, 32, 16, dtype=HALF)
    ends = torch.arange(16, 65, 16, dtype=torch.int32, device="cuda")
    return lambda: torch._grouped_mm(a, b, offs=ends)


def int8():
    a = empty(64, 64, dtype=torch.int8)
    return lambda: torch._int_mm(a, a)


def int8_weights():
    x, w, scale = empty(4, 64, dtype=HALF), empty(128, 64, dtype=torch.int8), empty(128, dtype=HALF)
    return lambda: torch.ops.aten._weight_int8pack_mm(x, w, scale)


def int4_weights():
    x, packed = empty(4, 4096, dtype=HALF), empty(512, 32, 32, 4, dtype=torch.int32)
    scales = empty(32, 4096, 2, dtype=HALF)
    return lambda: torch.ops.aten._weight_int4pack_mm(x, packed, 128, scales)


def attention():
    layer = nn.MultiheadAttention(512, 8, batch_first=True).cuda().eval()
    x = empty(16, 128, 512)
    return lambda: layer(x, x, x)


def encoder():
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True).to("cuda", HALF).eval()
    x = empty(32, 512, 1024, dtype=HALF)
    return lambda: layer(x)


def lstm():
    layer = nn.LSTM(512, 512, batch_first=True).cuda()
    x = empty(32, 100, 512)
    return lambda: layer(x)


BY_HAND = {
    grouped: 2 * 64 * 32 * 16,
    int8: 2 * 64**3,
    int8_weights: 2 * 4 * 64 * 128,
    int4_weights: 2 * 4 * 4096 * 4096,
    attention: 16 * 128 * (8 * 512**2 + 4 * 128 * 512),
    encoder: 32 * 512 * (8 * 1024**2 + 4 * 512 * 1024 + 16 * 1024**2),
    lstm: 32 * 100 * 2 * 2 * 4 * 512**2,
}


@pytest.mark.parametrize("make", BY_HAND, ids=lambda make: make.__name__)
def test_products_of_every_kind_are_counted(gpus, make):
    """Else evaluation by PyTorch's fast paths, mixtures of experts and quantized layers would look free."""
    with torch.no_grad():
        forecast = gpus.forecast(make())
    assert forecast.flops == BY_HAND[make]
    assert forecast.unknown == []


def test_a_compiler_reads_int8_weights_and_not_what_they_are_widened_to(gpus):
    """Else quantized weights would look slower than bfloat16, and are faster."""
    x, scale = empty(1, 4096, dtype=HALF), empty(4096, dtype=HALF)
    small, large = empty(4096, 4096, dtype=torch.int8), empty(4096, 4096, dtype=HALF)
    quantized = gpus.forecast(lambda: F.linear(x, small.to(HALF)) * scale, fused=True)
    assert quantized.bytes == pytest.approx(4096**2, rel=0.01)
    whole = gpus.forecast(lambda: F.linear(x, large) * scale, fused=True)
    assert quantized.graphed.ms < whole.graphed.ms


def test_int8_weights_are_read_as_such_behind_a_chain(gpus):
    """Else text from a quantized model would be forecast up to twice too slow: there a kernel comes before each product."""
    x, scale = empty(1, 4096, dtype=HALF), empty(4096, dtype=HALF)
    weights = [empty(4096, 4096, dtype=torch.int8) for _ in range(4)]

    def step():
        y = x
        for weight in weights:
            y = F.silu(F.linear(y, weight.to(HALF)) * scale)

    assert gpus.forecast(step, fused=True).bytes == pytest.approx(4 * 4096**2, rel=0.01)


def test_a_compiler_merges_norms_and_writes_no_results_that_nobody_reads(gpus):
    """Else a compiled network would be forecast as if LayerNorm and the places of a pool went through memory (1.5 times too slow)."""
    x, norm = empty(4096, 4096, dtype=HALF), nn.LayerNorm(4096, device="cuda")
    chain = gpus.forecast(lambda: norm((x * 2).float()).to(HALF) + 1, fused=True)
    assert chain.bytes == pytest.approx(2 * x.nbytes, rel=0.01)
    image = empty(64, 64, 56, 56, dtype=HALF)
    pool = gpus.forecast(lambda: F.max_pool2d(image, 2), fused=True)
    assert pool.bytes == pytest.approx(1.25 * image.nbytes)


def test_a_token_on_eight_gpus_can_be_asked(gpus):
    """Else serving a model split over cards would be refused, or its small sums cost as much as large ones."""
    q, weight = empty(1, 8, 1, 64, dtype=HALF), empty(512, 512, dtype=HALF)

    def step():
        y = F.scaled_dot_product_attention(q, q, q).reshape(1, 512)
        return F.linear(y, weight)

    one = gpus.forecast(step).graphed
    more = one.on(gpus=8, plan="tp").ms - one.ms
    assert 0.02 < more < 0.06  # two sums of 1 KiB


def training(width=1024, depth=8, shard=False):
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)]).cuda()
    for each in [*model, model] if shard else []:
        fully_shard(each)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch=4096):
        model(empty(batch, width)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return model, step


def test_what_is_sharded_takes_its_share_of_each_gpus_memory(gpus):
    """Else nobody could ask whether a model fits on eight GPUs, which is why one shards it."""
    model, step = training()
    one = gpus.forecast(step)
    weights = sum(p.nbytes for p in model.parameters())
    assert (one.state.parameters, one.state.gradients) == (weights, weights)
    assert one.state.optimizer == pytest.approx(2 * weights, rel=0.01)
    kept = [one.on(gpus=8, plan=plan).rank_bytes for plan in ("ddp", "zero1", "zero2", "fsdp")]
    assert kept == sorted(kept, reverse=True)
    forward = one.state.forward  # activations make the peak: there are no gradients yet to share
    assert forward - kept[2] == pytest.approx(7 / 8 * 2 * weights, rel=0.01)
    assert kept[3] == pytest.approx(forward - 7 / 8 * 3 * weights + 4 * weights / 8, rel=0.01)


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("depth", [8, 32])
@pytest.mark.parametrize("batch", [16, 4096])  # weights make the peak, or activations
def test_a_ranks_memory_is_nearly_what_fsdp2_holds(gpus, batch, depth, ranks):
    """Else a plan would be said to fit that doesn't: where activations make the peak, no gradients are there to share."""
    model, step = training(depth=depth)
    planned = gpus.forecast(lambda: step(batch)).on(gpus=ranks, plan="fsdp").rank_bytes
    del model, step
    gc.collect()
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        _, step = training(depth=depth, shard=True)
        torch.cuda.reset_peak_memory_stats()
        step(batch)
        assert planned == pytest.approx(torch.cuda.max_memory_allocated(), rel=0.04)
    finally:
        torch.distributed.destroy_process_group()


def test_what_only_the_update_holds_is_divided_with_its_state(gpus):
    """Else a model that fits on eight GPUs would be said to need twice their memory: Adam's temporaries are a copy of all weights."""
    _, step = training(2048, 12)
    one = gpus.forecast(lambda: step(16))
    assert one.state.temporary > 0.9 * one.state.parameters
    sharded = one.on(gpus=64, plan="fsdp").rank_bytes
    kept = one.state.parameters + one.state.optimizer + one.state.gradients
    assert 0 < sharded - (one.state.passes - 63 / 64 * kept) < 5 * one.state.block
    assert one.on(gpus=64, plan="ddp").rank_bytes > one.peak_bytes


def test_no_product_of_pytorchs_is_known_without_its_operations(gpus):
    """Else a product would take the time of its bytes alone, and nothing would say so, as _foreach_mm and addmm_ did."""
    product = re.compile(r"(^|_)(mm|bmm|addmm|baddbmm|mv|matmul|linear|conv\w*|attention)(_|$)")
    for name in filter(product.search, dir(torch.ops.aten)):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else []:
            func = getattr(packet, overload)
            runs = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CUDA")
            if runs and known(func):
                plain = name.rstrip("_")
                counted = getattr(torch.ops.aten, plain) in flop_registry or plain in OURS
                assert counted or name in PATHS or "dot_product" in name or "upsample" in name, func
    x, y = empty(64, 64), empty(64, 64)
    wanted = 2 * 64**3
    found = gpus.forecast(lambda: [x.addmm_(x, y), torch._foreach_mm([x, y], [y, x])])
    assert found.flops == 3 * wanted


def test_nodes_cost_what_the_network_between_them_does(gpus):
    """Else 512 GPUs would look like one box."""
    model, step = training(4096)
    one = gpus.forecast(step)
    inside, across = (one.on(gpus=16, plan="fsdp", per_node=each) for each in (16, 8))
    slow = one.on(gpus=16, plan="fsdp", nic=1.0)
    assert inside.ms < across.ms < slow.ms
    assert one.on(gpus=8).on("B200").gpus == 8
    assert one.on(gpus=8).on(gpus=1).ms == one.ms


def test_tensor_parallelism_divides_a_step_and_sends_its_sums(gpus):
    """Else a model too large for one GPU would have no forecast, or a perfect one."""
    x, layers = empty(8, 512, 1024, dtype=HALF), nn.Linear(1024, 3072).to("cuda", HALF)

    def step():
        q, k, v = (each.unflatten(2, (16, 64)).transpose(1, 2) for each in layers(x).chunk(3, 2))
        F.scaled_dot_product_attention(q, k, v).sum().backward()

    one = gpus.forecast(step)
    split = one.on(gpus=8, plan="tp")
    assert split.flops == pytest.approx(one.flops / 8, rel=0.01)
    assert sum(span.bound == "reduce" for span in split.spans) == 4
    with pytest.raises(ValueError, match="has none"):
        _ = gpus.forecast(training(256)[1]).on(gpus=8, plan="tp").ms


def test_a_card_is_found_by_the_words_that_people_use():
    """Else "A100 SXM", which clouds rent out, would be no card."""
    for words, name in {"A100 SXM4 80GB": "A100 (80 GB)", "a6000": "RTX A6000 (48 GB)"}.items():
        assert find_card(words) == name
    assert get_card("H20").bandwidth == 4000 and get_card("mi250x").gigabytes == 64
    assert get_card("H100 NVL").bandwidth == 3938 and get_card("4070").short == "RTX 4070"
    assert get_card("2080ti").fp16 == 56.9 and get_card("GH200 144").pcie == 450
    with pytest.raises(ValueError, match="more than one"):
        find_card("GH200")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"plan": "dpp"}, "one of ddp"),
        ({"nic": 0}, "nic=0"),
        ({"per_node": 0}, "per_node=0"),
        ({"gpus": 0}, "gpus=0"),
    ],
)
def test_a_plan_that_is_none_is_refused(gpus, what, words):
    """Else a misspelled plan would be forecast as another."""
    _, step = training(256, 2)
    with pytest.raises(ValueError, match=words):
        gpus.forecast(step).on(**{"gpus": 8} | what)


def test_a_forecast_answers_how_many_how_long_and_how_much(gpus):
    """Else people would multiply by hand, and forget the range or seven of the GPUs."""
    _, step = training()
    one = gpus.forecast(step)
    low, middle, high = one.per_second(4096)
    assert low < middle < high
    assert middle == pytest.approx(4096e3 / one.ms)
    job = one.job(1e9, 4096, usd_per_hour=2)
    assert job.hours.middle == pytest.approx(1e9 / middle / 3600)
    assert job.usd.high == pytest.approx(2 * job.hours.high)
    eight = one.on(gpus=8).job(1e9, 4096, usd_per_hour=2)
    assert eight.hours.middle < job.hours.middle
    assert job.usd.middle < eight.usd.middle < 2 * job.usd.middle
    assert "hours" in str(job) and "dollars" in str(job)
    assert one.job(1e9, 4096).usd is None


def test_counts_may_be_numpys_numbers(gpus):
    """Else who counts samples by an array's shape or a sum would be told that 2,048 is no number."""
    f = gpus.forecast(lambda: empty(1024) + 1)
    assert f.per_second(numpy.int64(2048)) == f.per_second(2048)
    assert f.job(numpy.float64(1e6), numpy.int32(8)) == f.job(1e6, 8)
    with pytest.raises(ValueError, match="count"):
        f.per_second(numpy.float64("nan"))


def test_prices_know_a_card_by_any_of_its_names(gpus):
    """Else README's own example gives no dollars, and a misspelled card is left out silently."""
    _, step = training()
    forecast = gpus.forecast(step)
    rows = forecast.on_cards(prices={"T4": 0.35, "H100 SXM": 3}, steps=1000)
    assert {row["card"] for row in rows if row["usd"]} == {"T4 (16 GB)", "H100 SXM (80 GB)"}
    with pytest.raises(ValueError, match="T5"):
        forecast.on_cards(prices={"T5": 1})
    usd = {row["card"][:2]: row["usd"] for row in rows if row["usd"]}
    fastest = forecast.within(usd["H1"] * 1.01, {"T4": 0.35, "H100 SXM": 3}, 1000)
    assert fastest["card"] == "H100 SXM (80 GB)"
    assert forecast.within(min(usd.values()) / 2, {"T4": 0.35, "H100 SXM": 3}, 1000) is None


def test_the_largest_batch_fits_and_the_next_does_not():
    """Else people would find it by errors, one rented hour after the other."""
    with practice_gpus(1, "1 GiB", card="T4", values=False) as gpus:
        _, step = training()
        largest = gpus.largest_batch(step)
        assert largest > 1000
        step(largest)
        with pytest.raises(torch.OutOfMemoryError):
            step(largest + 1)
        assert gpus.largest_batch(step, 1 << 19) == largest


def test_adapters_few_bits_and_recomputing_save_what_they_save():
    """Else "does it fit with QLoRA" could not be asked."""

    def peak(prepare):
        with practice_gpus(1, "16 GiB", card="T4", values=False, stand_in=1.0) as gpus:
            model = nn.Module()
            blocks = [nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(8)]
            model.blocks = nn.ModuleList(blocks)
            prepare(model.to("cuda", torch.float16))
            optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])

            def step():
                x = empty(1024, 2048, dtype=torch.float16)
                for block in model.blocks:
                    x = block(x)
                x.sum().backward()
                optimizer.step()
                optimizer.zero_grad()

            step()
            return gpus.forecast(step).peak_bytes

    weights = 8 * 2048**2 * 2
    full, adapted, few = peak(lambda m: m), peak(lora), peak(lambda m: lora(m, bits=4))
    assert full - adapted > 2.5 * weights  # no gradients, no state of the optimizer
    assert adapted - few == pytest.approx(
        weights * 11 / 16, rel=0.15
    )  # 4 bits and a scale, one layer widened
    assert peak(lambda m: recomputed(lora(m))) < adapted


def test_selective_checkpointing_keeps_attention_and_every_second_product():
    """Else what torchtitan does by default would be forecast as if nothing, or everything, were computed again."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(512, 1536), nn.Linear(512, 512)

        def forward(self, x):
            q, k, v = (each[:, None] for each in self.into(x).chunk(3, -1))
            return self.out(F.scaled_dot_product_attention(q, k, v)[:, 0]).relu()

    def names(prepare):
        with practice_gpus(1, card="T4", values=False) as gpus:
            model = nn.Module()
            model.blocks = nn.ModuleList([Block()])
            prepare(model.cuda())
            x = torch.empty(8, 256, 512, device="cuda", requires_grad=True)
            step = gpus.forecast(lambda: model.blocks[0](x).sum().backward())
            return Counter(kernel.name for kernel in step.kernels)

    once, again = names(lambda m: m), names(recomputed)
    kept = names(lambda m: recomputed(m, selective=True))
    attention = "scaled_dot_product_attention"
    assert (once["addmm"], again["addmm"], kept["addmm"]) == (2, 4, 3)
    assert (once[attention], again[attention], kept[attention]) == (1, 2, 1)


def test_few_bits_are_for_all_layers_and_adapters_for_those_named():
    """Else QLoRA of queries and values would be forecast with most weights in 16 bits: 15 GB for 5."""
    with practice_gpus(1, "1 GiB", card="T4", values=False):
        model = nn.ModuleDict({name: nn.Linear(512, 512) for name in ("q_proj", "up", "lm_head")})
        lora(model.to("cuda", torch.float16), bits=4, names=("q_proj",))
        trained = [name for name, each in model.named_parameters() if each.requires_grad]
        assert {name.split(".")[0] for name in trained} == {"q_proj"}
        assert model["up"].packed.nbytes == 512 * 512 // 2
        assert isinstance(model["lm_head"], nn.Linear)
        alone = lora(nn.Linear(64, 64, device="cuda"))
        assert alone(empty(2, 64)).shape == (2, 64)


def test_a_block_inside_a_block_is_computed_again_once():
    """Else a mixture of experts would be forecast with its activations computed three times."""
    block = nn.Linear(8, 8)
    block.experts = nn.ModuleList([nn.Linear(8, 8)])
    model = nn.Module()
    model.blocks = nn.ModuleList([block])
    recomputed(model)
    assert "forward" in vars(block) and "forward" not in vars(block.experts[0])


def test_an_answer_is_one_line_with_its_range_and_without_exponents(gpus):
    """Else people would read 1.86e+03, and a price without its range."""
    forecast = gpus.forecast(training()[1])
    rate = str(forecast.per_second(4096))
    assert "e+" not in rate and "a second" in rate and " to " in rate
    offer = str(forecast.within(10, {"T4": 0.35}, 1000))
    assert offer.startswith("forecast: ") and "minutes on T4 (16 GB)" in offer
    assert offer.count(" to ") == 2 and "dollars" in offer and "of its memory" in offer


def test_forecasts_use_the_cpu_that_was_measured_and_say_so(monkeypatch, tmp_path):
    """Else calibrating would change nothing, or change numbers without a word."""

    def forecast():
        with practice_gpus(1, card="T4", values=False) as gpus:
            x = empty(8)
            return gpus.forecast(lambda: [x + 1 for _ in range(100)])

    before = forecast()
    assert "this machine" not in str(before)
    monkeypatch.setattr(calibrate, "issued", lambda device: [20e-6])
    monkeypatch.setenv(clock_cpu.NAME, str(tmp_path / "new" / "cpu.json"))
    assert calibrate.main() == 0
    after = forecast()
    taken = 20e-6 + calibrate.LAUNCHED * (not torch.cuda.is_available())
    assert after.ms / before.ms == pytest.approx(taken / ISSUE, rel=0.02)
    assert f"this machine's CPU, {1e6 * taken:.0f} µs an operator, measured" in str(after)
    clock_cpu.cpu_file().write_text(json.dumps({"other": 1}))
    assert forecast().ms == before.ms


def test_questions_with_numbers_that_cannot_be_are_refused_by_name(gpus):
    """Else a slip would be answered with hours below zero, or with an error that names nothing."""
    f = gpus.forecast(lambda: empty(1024) + 1)
    wrong = {
        "count": lambda: f.per_second(-1),
        "samples": lambda: f.job(-5, 2),
        "batch": lambda: f.job(5, 0),
        "usd_per_hour": lambda: f.job(5, 2, -1),
        "usd=": lambda: f.within("x", {"T4": 1}),
        "prices": lambda: f.on_cards(["T4"], {"T4": -3}),
        "bits": lambda: lora(nn.Linear(64, 64), bits=3),
        "rank": lambda: lora(nn.Linear(64, 64), rank=0),
        "start": lambda: gpus.largest_batch(lambda batch: None, 0),
        "start=1.5": lambda: gpus.largest_batch(lambda batch: None, 1.5),
        "count=inf": lambda: f.per_second(float("inf")),
        "cards='T4'": lambda: f.on_cards("T4"),
        "prices='T4'": lambda: f.on_cards(["T4"], "T4"),
        "prices: card='A100'": lambda: f.on_cards(["T4"], {"A100": 1}),
        "prices={}": lambda: f.within(10, {}),
        "names=": lambda: lora(nn.Sequential(nn.Linear(64, 64)), names=("q_proj",)),
        "model has none": lambda: lora(nn.Conv2d(3, 3, 1)),
        "no ModuleList": lambda: recomputed(nn.Linear(3, 3)),
        "model=3": lambda: lora(3),
    }
    for word, ask in wrong.items():
        with pytest.raises((TypeError, ValueError), match=word):
            ask()
