"""`python -m practice_gpus trace FILE`: anyone's trace or snapshot is read, or refused in a sentence, and judged rightly."""

import gzip
import json
import lzma
import os
import pickle

import pytest

from practice_gpus.traces import RULES, busy_share, exposed, kernel_class, read, snapshots, verdict
from practice_gpus.traces.command import main
from practice_gpus.traces.files import document, unpacked

GEMM, ADD = "ampere_bf16_s16816gemm_tn", "vectorized_elementwise_kernel<4, AddFunctor>"


def kernel(name, start, length, number=None, category="kernel", **arguments):
    """One event of the GPU, launched by call `number`."""
    arguments |= {} if number is None else {"correlation": number}
    return box(name, start, length, category, {"device": 0, "stream": 7} | arguments, (0, 7))


def call(name, start, length, category="cpu_op", number=None):
    """What the CPU does."""
    return box(name, start, length, category, {} if number is None else {"correlation": number})


def box(name, start, length, category, arguments, thread=(9, 9)):
    where = dict(zip(("pid", "tid"), thread, strict=True))
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start,
        "dur": length,
        "args": arguments,
    } | where


def step(*between, work=(GEMM,), gap=3000, each=1000, ahead=0):
    """A trace of ten steps: kernels of `each` µs, then a gap in which the CPU makes one call."""
    events = []
    for i in range(10):
        at = 1000 + i * (each * len(work) + gap)
        for j, name in enumerate(work):
            number, kind = 100 * i + j, "gpu_memcpy" if "Memcpy" in name else "kernel"
            events.append(
                call("cudaLaunchKernel", at + each * j - 10 - ahead, 5, "cuda_runtime", number)
            )
            events.append(kernel(name, at + each * j, each, number, kind))
        events += [call(name, at + each * len(work) + 1, gap - 20, kind) for name, kind in between]
    return {"traceEvents": events, "deviceProperties": [{"name": "NVIDIA H100"}]}


CALLS = [call("cudaLaunchKernel", 0, 5, "cuda_runtime") for _ in range(3)]
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SHARE = 27 / 37  # of `step`: nine gaps of 3 ms, ten kernels of 1
CASES = {
    "loader": (step((LOADER, "user_annotation")), "loader", SHARE, "num_workers"),
    "allocator": (step(("cudaFree", "cuda_runtime")), "waits", SHARE, "caching allocator"),
    "resize": (step(("photos.py(3): resize", "python_function")), "waits", SHARE, "another process"),
    "lost": (step(("cudaDeviceSynchronize", "cuda_runtime")), "unclear", SHARE, "isn't in this trace"),
    "item": (step(work=(GEMM, "Memcpy DtoH (Device -> Pageable)"), each=100, gap=180), "waits", 1620 / 3620, "less often"),
    "start": (step(("cudaStreamCreate", "cuda_runtime"), gap=200_000), "waits", 0.995, "schedule("),
    "tiny": (step(gap=90, each=10), "launches", 81 / 91, "CUDA graph"),
    "exposed": (
        step(work=(GEMM, "ncclDevKernel_AllReduce_Sum_f32"), gap=0), "communication", 0.5, "overlap",
    ),
    "network": (
        step(work=(GEMM, *["ncclDevKernel_AllReduce_Sum_f32"] * 2), gap=0), "communication", 2 / 3, "every rank",
    ),
    "buckets": (
        step(work=(GEMM, *["ncclDevKernel_AllReduce_Sum_f32"] * 3), gap=0, each=50), "communication", 3 / 4, "buckets",
    ),
    "unfused": (step(work=(GEMM, ADD, ADD), gap=0), "kernels", 2 / 3, "torch.compile"),
    "attention": (
        step(work=(GEMM, "cunn_SoftMaxForward<8>", GEMM), gap=0), "kernels", 1 / 3, "scaled_dot_product",
    ),
    "healthy": (step(gap=0, ahead=900), "nothing", 1.0, "forecast"),
    "compiled": (step(work=(GEMM, "triton_poi_fused_add_mul_0"), gap=0), "nothing", 1.0, "forecast"),
    "busy enough": (step((LOADER, "user_annotation"), gap=100), "nothing", 10 / 10.9, "forecast"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_names_what_costs_most_its_share_and_the_change(name):
    """Else somebody spends a day on the wrong change."""
    trace, kind, share, change = CASES[name]
    found = verdict(read(trace))
    assert (found.kind, change in found.change) == (kind, True), found
    assert found.share == pytest.approx(share, abs=0.01)
    assert f"{found.share:.0%} of the time" in found.says


def test_a_program_that_is_called_after_its_loader_does_not_wait_for_it():
    """The frame of a script named dataloader_speed.py lies around all that it does."""
    for name, kind in (
        ("dataloader_speed.py(9): forward", "launches"),
        ("torch/utils/data/dataloader.py(70): __next__", "loader"),
    ):
        found = verdict(read(step((name, "python_function"), gap=500, each=20)))
        assert found.kind == kind, found


def test_every_rule_is_a_sentence_with_a_threshold_and_its_reason():
    """A number that nobody can question helps nobody."""
    assert {rule.kind for rule in RULES} <= {
        "loader",
        "waits",
        "launches",
        "communication",
        "copies",
        "kernels",
        "unclear",
    }
    assert all(0 < rule.least < 1 and 0 < rule.saves <= 1 and len(rule.why) > 10 for rule in RULES)


def test_a_copy_that_blocks_the_cpu_is_blamed_for_the_launches_behind_it():
    """The queue runs empty after each copy from pageable memory; larger batches wouldn't help."""
    trace = step(gap=900, ahead=2000)
    blocking = [kernel("Memcpy HtoD (Pageable -> Device)", 2100 + 1900 * i, 80, category="gpu_memcpy", bytes=10**7)
                for i in range(9)]  # fmt: skip
    found = verdict(read({"traceEvents": trace["traceEvents"] + blocking}))
    assert found.kind == "copies" and "pin_memory" in found.change


def test_the_rank_that_comes_last_is_named(tmp_path, capsys):
    """Whose collectives are shortest waited for nobody: the others' time isn't the network's."""
    files = []
    for rank, length in enumerate((900, 850, 100)):
        talk = [
            kernel("ncclDevKernel_AllReduce", 2000 * i + 1000 - length, length) for i in range(9)
        ]
        work = [kernel(GEMM, 2000 * i + 1000, 900) for i in range(9)]
        files.append(tmp_path / f"rank{rank}.json")
        files[-1].write_text(
            json.dumps({"traceEvents": talk + work, "distributedInfo": {"rank": rank}})
        )
    assert main([*map(str, files), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["kind"] == "communication" and "wait for rank 2" in found["says"]
    assert found["facts"]["ranks"] == [0, 1, 2]


def test_a_trace_without_most_of_its_kernels_is_not_called_an_idle_gpu():
    """Ten launches of a graph, the kernels of two were recorded: it looked 18% busy."""
    graphs = [call("cudaGraphLaunch", 1000 * i, 5, "cuda_runtime", i) for i in range(10)]
    seen = [kernel(GEMM, 1000 * i + 50 * j, 50, i) for i in (0, 9) for j in range(5)]
    found = verdict(read({"traceEvents": graphs + seen}))
    assert found.kind == "unclear" and "8 of 10 launches have no kernel" in found.says
    assert verdict(read({"traceEvents": graphs[:1] + graphs[9:] + seen})).kind != "unclear"


def test_gaps_without_a_recorded_cpu_are_not_explained():
    """The CPU alone knows why; a guess would be a coin."""
    found = verdict(read({"traceEvents": [kernel(GEMM, 9000 * i, 1000) for i in range(5)]}))
    assert found.kind == "unclear" and "ProfilerActivity.CPU" in found.change


def test_two_gpus_of_one_process_are_two_lanes():
    """DataParallel and device_map="auto" use one after the other: each is idle half the time."""
    turns = [kernel(GEMM, 100 * i, 100, device=i % 2) for i in range(20)]
    trace = read(
        {"traceEvents": [*turns, call("model.py(3): forward", 0, 2000, "python_function"), *CALLS]}
    )
    assert trace.ranks == [0, 1] and busy_share(trace) == pytest.approx(0.5, abs=0.03)
    assert trace.rank(1).cpu == trace.cpu != []
    assert verdict(trace).kind == "launches"


def test_launches_of_other_makers_are_known():
    """Without them, nobody sees whether the GPU waits for the CPU."""
    for category, name in (
        ("xpu_runtime", "urEnqueueKernelLaunch"),
        ("privateuse1_runtime", "LaunchKernel"),
    ):
        events = [call(name, 90, 5, category, 1), kernel("gemm_kernel", 100, 50, 1)]
        assert read({"traceEvents": events}).gpu[0].launch == -10


KERNELS = {
    "matmul": """nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_swiGlu_dynBatch
        volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f turing_fp16_s1688cudnn_fp16 triton_tem_fused_addmm_0 triton_mm
        splitKreduce_kernel<32,16> fused_moe_kernel void+marlin::Marlin<half> _matmul_ogs_NNT_bf16xbf16_swiglu Cijk_Alik
        cusparse::csrmm_alg2_kernel RNN_blockPersist_fp_LSTM""",
    "attention": """attn_fwd _attn_fwd sage_fwd mha_fwd_splitkv flash::flash_fwd_kernel<> cudnn_infer_sdpa fmhaSm100aKernel_Qkv
        flashinfer::BatchPrefillWithPagedKVCacheKernel<> triton_tem_fused_flex_attention_0 _fwd_grouped_kernel_stage1 paged_attention_v2_kernel
        selective_scan_fwd_kernel<> _chunk_scan_fwd_kernel _state_passing_fwd_kernel paged_attention_quantized_fa3_partial""",
    "communication": """ncclDevKernel_AllReduce vllm::cross_device_reduce_1stage<> all2all_kernel deep_ep::intranode::dispatch<>
        multimem_all_reduce_kernel nvshmem_putmem rcclKernel dispatch combine""",
    "normalization": """fused_add_rms_norm_kernel flashinfer::norm::FusedAddRMSNormKernel<> triton_red_fused_native_layer_norm_3
        aiter::add_rmsnorm_quant_kernel gemma_rms_norm_kernel triton_per_fused__to_copy_mean_pow_rsqrt_7 cunn_SoftMaxForward _rms_normalize_kernel""",
    "elementwise": """act_and_mul_kernel fused_adam_kernel batched_transpose_32x32_half triton_poi_fused_all_reduce_add_1 triton_poi_fused_mm_0
        reshape_and_cache_flash_kernel triton_poi_fused__scaled_dot_product_flash_attention_cat_10 sage_quant_kernel
        per_token_group_quant_8bit_kernel kDequantizeBlockwise<half> upsample_nearest2d_nhwc_out_frame grid_sampler_2d_kernel
        at::native::CatArrayBatchedCopy<> FillFunctor<float> distribution_elementwise_grid_stride_kernel<normal_and>""",
    "other": """at::native::reduce_kernel<512,sum_functor> cub::DeviceRadixSortOnesweepKernel<> max_pool_forward_nchw
        split_embedding_codegen_forward_unweighted_kernel routingIndicesHistogramKernel my_own_kernel
        vllm::moe::topkGatingSoftmax<> flashinfer::sampling::TopKTopPSamplingFromProbKernel<>""",
}  # fmt: skip


@pytest.mark.parametrize("kind", KERNELS)
def test_kernels_of_newer_software_are_in_their_class(kind):
    """Else a B200 spends 55% on "other", and communication that isn't seen isn't exposed."""
    names = KERNELS[kind].replace("+", " ").split() if kind != "matmul" else KERNELS[kind].split()
    wrong = {name: kernel_class(name.replace("+", " ")) for name in names}
    assert set(wrong.values()) == {kind}, wrong


GOOD = json.dumps(CASES["loader"][0])
READABLE = {
    "plain.json": GOOD.encode(),
    "mark.json": b"\xef\xbb\xbf" + GOOD.encode(),
    "windows.json": GOOD.encode("utf-16"),
    "windows16.json": GOOD.encode("utf-16-le"),
    "twice.json.gz": gzip.compress(gzip.compress(GOOD.encode())),
    "trace.json.xz": lzma.compress(GOOD.encode()),
}
BROKEN_EVENTS = [None, 3, "kernel", [], {}, {"ph": "X"}] + [
    kernel(GEMM, 5000, 5) | change
    for change in (
        {"ts": None}, {"dur": None}, {"dur": float("nan")}, {"ts": "soon"}, {"dur": -3}, {"dur": 1e300},
        {"ts": float("inf")}, {"ph": None},
    )
]  # fmt: skip


@pytest.mark.parametrize("name", READABLE)
def test_a_trace_is_read_whatever_packed_or_encoded_it(tmp_path, capsys, name):
    """PowerShell writes UTF-16, a browser a mark in front, a cluster xz."""
    (tmp_path / name).write_bytes(READABLE[name])
    assert main([str(tmp_path / name)]) == 0
    assert capsys.readouterr().out.startswith(
        "73% of the time, the GPU waits for the DataLoader. First change: "
    )


def test_broken_events_are_left_out_and_the_rest_is_read():
    """One null among 100,000 events was a traceback."""
    whole = json.loads(GOOD)
    events = [*BROKEN_EVENTS, *whole["traceEvents"]]
    odd = {"args": None, "cat": "kernel"}
    found = read(
        {
            "traceEvents": [
                *events,
                kernel(GEMM, 1000, 0) | odd,
                {k: v for k, v in kernel("", 1000, 0).items() if k != "name"},
            ]
        }
    )
    assert busy_share(found) == pytest.approx(busy_share(read(whole))) and exposed(found) == 0


MTIA = [call("mtia_launch", 0, 5, "mtia_runtime", 1), call("run", 0, 5, "mtia_ccp_events")]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("made_by_a_pickle",)


BAD = {
    "lfs.json": (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "git lfs pull"),
    "page.json": (b"<!DOCTYPE html>", "a page of HTML"),
    "empty.json": (b"", "is empty"),
    "cupti.json": (json.dumps({"traceEvents": CALLS}).encode(), "couldn't see the GPU at work"),
    "mtia.json": (json.dumps({"traceEvents": MTIA}).encode(), "belong to another accelerator"),
    "browser.json": (
        json.dumps({"traceEvents": [call("paint", 0, 3, "ui")]}).encode(),
        "no events of torch.profiler",
    ),
    "zero.json": (json.dumps({"traceEvents": [kernel(GEMM, 5, 0)]}).encode(), "take no time"),
    "nan.json": (
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": NaN, "dur": 3}]}',
        "no events",
    ),
    "deep.json": (b"[" * 100_000, "nested too deeply"),
    "extract.json": (b'{"version": 1, "kernels": [], "gpu": 3}', "damaged extract"),
    "packed.json.zst": (b"\x28\xb5\x2f\xfd1234", "packed.json.zst"),
    "evil.pickle": (pickle.dumps(Evil()), "asks to import posix.mkdir"),
    "cut.pickle": (pickle.dumps({"segments": [1] * 99})[:-9], "cut off or damaged"),
    "list.pickle": (pickle.dumps([1, 2]), "no memory snapshot"),
    "weights.pickle": (pickle.dumps({"lr": 3}), "no memory snapshot"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_gets_one_sentence(tmp_path, capsys, monkeypatch, name):
    """Never a traceback, and the sentence says what it is instead."""
    data, sentence = BAD[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SystemExit) as stop:
        main([name])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and sentence in said and name in said, said
    assert not (tmp_path / "made_by_a_pickle").exists()


def test_zstandard_is_read_where_python_can(tmp_path):
    """Kineto's newest traces are packed so."""
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(GOOD.encode())
    assert document(unpacked(packed, "a.json.zst"), "a.json.zst") == json.loads(GOOD)


FRAMES = [
    {"filename": "??", "line": 0, "name": "void at::native::empty"},
    {
        "filename": "C:\\python\\Lib\\site-packages\\torch\\nn\\linear.py",
        "line": 9,
        "name": "forward",
    },
    {"filename": "C:\\me\\train.py", "line": 12, "name": "step"},
]


def block(size, frames=(), state="active_allocated"):
    return {"size": size * 2**20, "state": state, "frames": list(frames)}


def snapshot(*blocks, events=()):
    total = sum(each["size"] for each in blocks)
    return {
        "segments": [{"total_size": total, "blocks": list(blocks)}],
        "device_traces": [list(events)],
    }


def test_a_memory_snapshot_counts_what_has_no_stack(tmp_path, capsys):
    """313 of 1,314 MiB were shown as if they were all."""
    whole = snapshot(
        block(300, FRAMES),
        block(1000),
        block(64, state="inactive"),
        block(14, FRAMES, "active_awaiting_free"),
    )
    assert snapshots.held(whole) == {
        "train.py(12): step": 314 * 2**20,
        snapshots.NO_FRAMES: 1000 * 2**20,
    }
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(whole))
    assert main([str(tmp_path / "a.pickle")]) == 0
    said = capsys.readouterr().out
    assert said.startswith(
        "1,314 MiB are in use, of 1,378 reserved; 76% of them were allocated where no stack"
    )
    assert "314.0 MiB  train.py(12): step" in said and "_record_memory_history()" in said


def test_a_snapshot_says_the_peak_and_memory_in_pieces():
    """Out of memory with memory to spare has a cure of its own."""
    events = [
        {"action": "alloc", "size": 300 * 2**20}, {"action": "free_completed", "size": 200 * 2**20},
        {"action": "oom", "size": 50 * 2**20},
    ]  # fmt: skip
    found = snapshots.memory(
        snapshot(block(100, FRAMES), block(90, state="inactive"), events=events)
    )
    assert found.peak == 300 * 2**20 and "expandable_segments" in found.change
    assert (
        "make what train.py(12): step allocates smaller"
        in snapshots.memory(snapshot(block(9, FRAMES))).change
    )


def test_snapshots_of_older_pytorch_keep_their_frames_in_a_history():
    """PyTorch 2.0 wrote them so."""
    old = {"size": 5, "state": "active_allocated", "history": [{"addr": 1, "frames": FRAMES}]}
    assert snapshots.held(snapshot(old)) == {"train.py(12): step": 5}
