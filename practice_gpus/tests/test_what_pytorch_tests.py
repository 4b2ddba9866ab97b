"""What PyTorch's own tests of CUDA, and training libraries at their start, ask for: each ended wrongly before."""

import json

import pytest
import torch
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode


def test_a_stream_is_found_again_by_its_numbers(gpus):
    stream = torch.Stream("cuda:1")
    numbers = ("stream_id", "device_index", "device_type")
    again = torch.cuda.Stream(**{name: getattr(stream, name) for name in numbers})
    assert again == stream and isinstance(stream, torch.cuda.Stream)
    with stream:
        assert torch.cuda.current_stream("cuda:1") == stream
        assert torch._C._cuda_getCurrentRawStream(1) == stream.cuda_stream
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1) != stream


def test_the_cpu_has_no_streams(gpus):
    for function in (torch.cuda.current_stream, torch.cuda.default_stream):
        with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
            function(torch.device("cpu"))


def test_priorities_of_streams_are_those_that_they_were_given(gpus):
    least, greatest = torch.cuda.Stream.priority_range()
    given = [torch.cuda.Stream(priority=one).priority for one in (least, -1, greatest, -99)]
    assert given == [0, -1, greatest, greatest]


def test_an_event_has_no_number_before_it_is_recorded(gpus):
    event = torch.cuda.Event()
    assert event.event_id == event.cuda_event == 0
    event.record()
    assert event.event_id != 0


def test_no_time_passes_between_events_of_two_gpus(gpus):
    events = []
    for index in (0, 1):
        with torch.cuda.device(index):
            events.append(torch.cuda.Event(enable_timing=True))
            events[-1].record()
    with pytest.raises(torch.AcceleratorError, match="invalid resource handle"):
        events[0].elapsed_time(events[1])


def test_scattered_chunks_keep_their_layout(gpus):
    images = torch.rand(4, 3, 2, 2, device="cuda").to(memory_format=torch.channels_last)
    here, there = comm.scatter(images, [0, 1])
    for chunk in (here, there):
        assert chunk.is_contiguous(memory_format=torch.channels_last)
    assert here.data_ptr() == images.data_ptr()  # a view, not a copy


def test_storages_of_old(gpus):
    assert torch.cuda.IntStorage(4).fill_(7).tolist() == [7] * 4
    storage = torch.ones(3).storage().cuda().double()
    assert isinstance(storage, torch.cuda.DoubleStorage)
    assert isinstance(storage.cpu(), torch.DoubleStorage)
    assert torch.UntypedStorage(8, device="cuda:1").device == torch.device("cuda:1")


def test_new_tensors_of_old(gpus):
    x = torch.ones(3, device="cuda:1")
    assert x.new([4, 5]).tolist() == [4, 5] and x.new([4, 5]).device == x.device
    assert x.new(2, 3).shape == (2, 3) and x.new(2, 3).device == x.device
    assert x.new([1], device="cuda:0").device == torch.device("cuda:0")


def test_addresses_are_the_allocators(gpus):
    x = torch.ones(1000, device="cuda")
    address = x.data_ptr()
    blocks = torch.cuda.memory_snapshot()[0]["blocks"]
    assert blocks[0]["address"] == address == x.untyped_storage().data_ptr()
    assert x[5:].data_ptr() == address + 20
    del x
    assert torch.ones(900, device="cuda").data_ptr() == address  # the same block


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.cudnn_affine_grid_generator(x, 1, 1, 2, 2),
        lambda x: torch.cuda.default_generators[0].set_offset(4),
        lambda x: torch.cuda.memory._set_allocator_settings("roundup_power2_divisions:4"),
    ],
)
def test_refused_in_words(gpus, call):
    with pytest.raises(NotImplementedError, match="practice GPUs do not imitate .*; "):
        call(torch.ones(3, 3, device="cuda"))


def test_emptying_the_cache_is_counted(gpus):
    torch.cuda.init()
    before = torch.cuda.memory_stats()["num_sync_all_streams"]
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["num_sync_all_streams"] == before + 1


def test_snapshots_tell_who_freed_memory_and_change_what_they_record(gpus):
    def taken():
        return torch.rand(3, device="cuda")

    def freed(kept):
        del kept[0]

    def unseen():
        return torch.rand(5, device="cuda")

    torch.cuda.memory._record_memory_history(context="all")
    kept = [taken()]
    freed(kept)
    torch.cuda.memory._record_memory_history(context=None)
    kept.append(unseen())
    told = json.dumps(torch.cuda.memory._snapshot())
    torch.cuda.memory._record_memory_history(None)
    assert '"taken"' in told and '"freed"' in told and '"unseen"' not in told


def test_sparse_results_on_an_asynchronous_gpu(imitated):
    with imitated(asynchronous=True):
        places = torch.tensor([[0, 1], [1, 0]], device="cuda")
        values = torch.tensor([2.0, 3.0], device="cuda")
        matrix = torch.sparse_coo_tensor(places, values, (2, 2))
        assert matrix.coalesce().values().tolist() == [2, 3]
        assert (matrix * 2).to_dense().tolist() == [[0, 4], [6, 0]]


def test_queued_work_gives_its_memory_back_before_a_gpu_is_full(imitated):
    with imitated(memory="64 MiB", asynchronous=True):
        torch.cuda._sleep(200_000_000)
        for number in range(8):
            x = torch.empty(5 << 20, device="cuda").fill_(number) + 1
        assert x[0].item() == 8


def test_what_lightning_and_fastai_ask_for_at_their_start(gpus):
    """``CUDAAccelerator`` and ``_parse_gpu_ids`` of Lightning 2.6, ``default_device`` of fastai 2.8.12."""
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    for index in range(2):
        assert torch.tensor(0, device=torch.device("cuda", index)).get_device() == index
    device = torch.device("cuda", 1)
    assert torch.cuda.get_device_capability(device)[0] >= 8 and torch.cuda.get_device_name(device)
    torch.cuda.set_device(device)
    assert torch.cuda.current_device() == 1
    if torch.version.cuda:
        assert torch.device(torch.cuda.current_device()) == device
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    assert "allocated_bytes.all.peak" in torch.cuda.memory_stats(device)
    properties = torch.cuda.get_device_properties(device)
    assert len(str(properties.uuid)) == 36 and properties.is_integrated == 0
    assert len(torch.cuda.get_rng_state_all()) == 2


def test_gradients_are_checked_several_at_once(gpus):
    x = torch.rand(3, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(torch.nn.functional.hardsigmoid, x, check_batched_grad=True)


@pytest.mark.slow
def test_rules_of_forward_derivatives_are_compiled_though_practice_is_on(run):
    run("""
        import torch
        from practice_gpus import practice_gpus
        with practice_gpus(1):
            from torch._decomp import decompositions_for_jvp
            assert decompositions_for_jvp.decomposition_table_for_jvp
            x = torch.rand(1, 1, 2, 2, dtype=torch.float64, device="cuda", requires_grad=True)
            double = lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")
            assert torch.autograd.gradcheck(double, x, check_forward_ad=True)
    """)


def test_a_tensor_is_made_of_a_storage(gpus):
    numbers = torch.arange(60.0, device="cuda:1").double()
    again = torch.tensor(numbers.storage(), device="cuda:1", dtype=torch.float64)
    assert torch.equal(again, numbers) and again.data_ptr() != numbers.data_ptr()
    bytes = numbers.untyped_storage()
    assert torch.equal(
        torch.tensor(bytes, device="cuda:0", dtype=torch.float64).cpu(), numbers.cpu()
    )
    with pytest.raises(RuntimeError, match="Expected a Storage of type Half .*, but got Double"):
        torch.tensor(numbers.storage(), device="cuda", dtype=torch.float16)


def test_a_mode_of_ones_own_does_not_move_gradients(gpus):
    """Autograd's casts name the device of what is stored; passed on, that must not look like a request."""

    class PassesOn(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs or {})

    weight = torch.nn.Parameter(torch.ones(3, 2, device="cuda"))
    with PassesOn():
        with torch.autocast("cuda"):
            total = (torch.ones(4, 2, device="cuda") @ weight.t()).sum()
        total.backward()
    assert weight.grad.device == torch.device("cuda:0") and weight.grad.dtype == torch.float32


def test_ctc_takes_targets_and_lengths_of_the_cpu(gpus):
    scores = torch.rand(8, 2, 4, device="cuda").log_softmax(2).requires_grad_()
    targets = torch.tensor([[1, 2], [3, 1]])
    loss = torch.nn.functional.ctc_loss(scores, targets, torch.tensor([8, 8]), torch.tensor([2, 2]))
    loss.backward()
    assert loss.is_cuda and scores.grad.is_cuda


@pytest.mark.slow
def test_a_mesh_of_gpus_does_not_end_the_process(run):
    """PyTorch takes NCCL where no backend is named: its end, without a driver, was that of the process."""
    run("""
        import os, torch
        from practice_gpus import practice_gpus
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
        with practice_gpus(1):
            mesh = torch.distributed.device_mesh.init_device_mesh("cuda", (1,))
            ones = torch.ones(2, device="cuda")
            torch.distributed.all_reduce(ones, group=mesh.get_group())
            assert ones.tolist() == [1, 1]
            torch.distributed.destroy_process_group()
    """)
