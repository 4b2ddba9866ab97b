"""What programs of others use beyond the course: each of these ended them wrongly before."""

import io
import pickle
import textwrap
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")


def test_lazy_modules_learn_their_sizes_on_the_gpu(gpus):
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    model.cuda()
    model(torch.ones(2, 3, 8, 8, device="cuda")).sum().backward()
    assert {str(p.device) for p in model.parameters()} == {"cuda:0"}
    assert model[3].weight.shape == (2, 144) and model[3].weight.grad.is_cuda


def test_gradients_of_each_sample_through_torch_func(gpus):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).cuda()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.rand(6, 1, 8, 8, device="cuda")
    y = torch.zeros(6, dtype=torch.int64, device="cuda")

    def loss(weights, x, y):
        out = torch.func.functional_call(model, weights, (x.unsqueeze(0),))
        return F.cross_entropy(out, y.unsqueeze(0))

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    F.cross_entropy(model(x), y).backward()
    for name, p in model.named_parameters():
        assert each[name].is_cuda
        torch.testing.assert_close(each[name].mean(0), p.grad)


def test_torch_func_refuses_two_devices(gpus):
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu"):
        torch.func.vmap(lambda row: row + torch.ones(4))(torch.ones(3, 4, device="cuda"))


def test_jagged_tensors_live_on_the_gpu_and_strided_ones_are_refused(gpus):
    rows = [torch.ones(2, 4), torch.ones(3, 4)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device="cuda:1")
    out = nn.Linear(4, 2, device="cuda:1")(nested * 2)
    assert nested.device == out.device == torch.device("cuda:1") and out.unbind()[0].is_cuda
    with pytest.raises(NotImplementedError, match="layout=torch.jagged"):
        torch.nested.nested_tensor(rows, device="cuda")


def test_gradients_flow_back_through_jagged_tensors(gpus):
    def gradient(device):
        torch.manual_seed(0)
        layer = nn.Linear(4, 2).to(device)
        rows = [torch.arange(8.0).view(2, 4), torch.ones(3, 4)]
        nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device=device)
        layer(nested * 2).to_padded_tensor(0.0).square().sum().backward()
        return layer.weight.grad

    assert gradient("cuda:1").device == torch.device("cuda:1")
    assert torch.equal(gradient("cuda:1").cpu(), gradient("cpu"))


def test_types_that_name_device_and_dtype(gpus):
    x = torch.cuda.LongTensor([1, 2])
    assert x.tolist() == [1, 2] and x.device == torch.device("cuda:0")
    assert torch.cuda.FloatTensor(2, 3).shape == (2, 3)
    assert isinstance(x, torch.cuda.LongTensor) and not isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
    assert torch.ones(2).type(torch.cuda.DoubleTensor).type() == "torch.cuda.DoubleTensor"
    assert not isinstance(x, torch.LongTensor) and torch.LongTensor(x.cpu()).is_cpu
    for kind, given in ((torch.LongTensor, x), (torch.cuda.LongTensor, x.cpu())):
        with pytest.raises(TypeError, match="dtype=long int, device=.*dtype=long int, device="):
            kind(given)  # CUDA refuses it, so a bug would pass here
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    try:
        assert torch.Tensor([1]).is_cuda and torch.Tensor(2, 3).is_cuda and torch.zeros(1).is_cuda
        assert torch.Tensor(torch.ones(1, device="cpu")).is_cpu
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.Tensor([1]).is_cpu and torch.zeros(1).is_cpu


def test_compiled_functions_run_as_they_are_and_say_so_once(gpus):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = torch.compile(nn.Linear(2, 2).cuda())
        double = torch.compile(mode="max-autotune")(lambda x: x * 2)
        assert double(model(torch.ones(1, 2, device="cuda"))).is_cuda
    assert sum("run the function as it is" in str(one.message) for one in seen) == 1


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("kind", [torch.optim.Adagrad, torch.optim.Adam, torch.optim.SGD])
def test_optimizers_with_a_scaler(gpus, kind, options):
    layer = nn.Linear(4, 2).cuda()
    before = layer.weight.detach().clone()
    scaler = torch.amp.GradScaler("cuda")
    optimizer = kind(layer.parameters(), lr=0.1, **options)
    scaler.scale(layer(torch.ones(1, 4, device="cuda")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(layer.weight, before)


def test_the_profiler_shows_the_cpus_work_without_errors_of_the_driver(gpus, capfd):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
    assert "aten::mm" in profile.key_averages().table(sort_by="cuda_time_total")
    assert "Failed to record CUDA event" not in capfd.readouterr().err


def test_a_memory_snapshot_for_pytorchs_viewer(gpus, tmp_path):
    torch.cuda.memory._record_memory_history(max_entries=1000)
    first = torch.ones(1000, device="cuda")
    second = torch.ones(1 << 20, device="cuda:1")
    del first
    torch.cuda.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.ones(10, device="cuda")  # not recorded any more
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    actions = [[event["action"] for event in trace] for trace in snapshot["device_traces"]]
    freed = ["free_requested", "free_completed"]
    assert actions == [["segment_alloc", "alloc", *freed], ["segment_alloc", "alloc"]]
    event = snapshot["device_traces"][0][1]
    assert event["size"] == 4000
    assert event["frames"][0]["name"] == "test_a_memory_snapshot_for_pytorchs_viewer"
    for segments in (snapshot["segments"], torch.cuda.memory_snapshot()):
        assert [one["total_size"] for one in segments] == [2 << 20, 20 << 20]
        assert [one["allocated_size"] for one in segments] == [0, second.nbytes]
        assert [one["device"] for one in segments] == [0, 1]
    viewer = torch.cuda._memory_viz
    for draw in (viewer.trace_plot, viewer.segment_plot):
        assert "<html>" in draw(snapshot) or "viewer" in draw(snapshot)
    assert "segments: 2" in viewer.segsum(snapshot)


def test_seeds_of_a_gpu_leave_the_cpu_alone(gpus):
    def draw():
        dropped = F.dropout(torch.ones(9, device="cuda"))
        return torch.rand(3, device="cuda"), dropped, torch.randperm(9, device="cuda")

    torch.manual_seed(0)
    state = torch.get_rng_state()
    torch.cuda.manual_seed(5)
    first = draw()
    assert torch.equal(torch.get_rng_state(), state)
    torch.cuda.manual_seed(5)
    assert all(torch.equal(a, b) for a, b in zip(first, draw(), strict=True))


@pytest.mark.slow
def test_spawned_processes_have_the_gpus_from_their_first_line_on(run):
    said = run(
        """
        import torch
        import torch.multiprocessing as mp

        HERE = torch.cuda.is_available()

        def work(queue, x):
            queue.put((HERE, str(x.device), x.sum().item(), torch.cuda.device_count()))
            x += 1

        if __name__ == "__main__":
            from practice_gpus import practice_gpus

            with practice_gpus(2):
                context = mp.get_context("spawn")
                queue, x = context.Queue(), torch.ones(3, device="cuda:1")
                process = context.Process(target=work, args=(queue, x))
                process.start()
                print(queue.get())
                process.join()
                print(x.tolist(), process.exitcode)
        """
    )
    assert said.splitlines() == ["(True, 'cuda:1', 3.0, 2)", "[2.0, 2.0, 2.0] 0"]


@pytest.mark.slow
def test_a_script_runs_on_practice_gpus_and_so_does_what_it_starts(run):
    said = run(
        """
        import subprocess, sys, torch
        print(torch.ones(2, device="cuda:1").device, flush=True)
        if len(sys.argv) < 2:
            subprocess.run([sys.executable, __file__, "child"], check=True)
        """,
        *("-m", "practice_gpus", "-n", "2"),
    )
    assert said.split() == ["cuda:1", "cuda:1"]


def test_what_the_environment_asks_for_in_vain(monkeypatch):
    from practice_gpus.session import resume

    monkeypatch.setenv("PRACTICE_GPUS", "two")
    with pytest.raises(ValueError, match="PRACTICE_GPUS='two': it takes settings as JSON"):
        resume()


def test_modules_move_by_keyword(gpus):
    assert nn.Linear(2, 2).to(device="cuda:1").weight.device == torch.device("cuda:1")
    assert nn.Linear(2, 2).to(device=1, dtype=torch.half).weight.device == torch.device("cuda:1")


def test_sparse_products_on_a_nearly_full_gpu(gpus):
    eye = torch.eye(2000, device="cuda").to_sparse()
    assert torch.equal((eye @ eye).to_dense(), eye.to_dense())


def test_more_than_an_exabyte_is_refused_in_pytorchs_words(gpus):
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate more than 1EB memory"):
        torch.empty(1 << 60, dtype=torch.int8, device="cuda")


def test_operators_that_are_given_functions_run_on_the_gpu_or_are_refused(gpus):
    """Or are refused, as in PyTorch's tutorials: a result whose device is lost would be worse."""
    from torch._higher_order_ops.foreach_map import foreach_map
    from torch.nn.attention.flex_attention import flex_attention

    x = torch.ones(3, device="cuda:1")
    chosen = torch.cond(x.sum() > 2, lambda x: x + 1, lambda x: x - 1, (x,))
    assert chosen.device == x.device and chosen.tolist() == [2, 2, 2]
    with pytest.raises(NotImplementedError, match="do not imitate .*foreach_map"):
        foreach_map(torch.add, [x, x], [x, chosen])
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:1 and cpu"):
        torch.cond(x.sum() > 2, lambda x: x + torch.ones(3), lambda x: x - 1, (x,))
    rows = torch.rand(1, 2, 8, 4, device="cuda:1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NotImplementedError, match="do not imitate .*flex_attention"):
            flex_attention(rows, rows, rows)


def test_attention_with_ragged_rows_is_refused_in_words(gpus):
    rows = [torch.rand(3, 2, 4), torch.rand(5, 2, 4)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, device="cuda").transpose(1, 2)
    with pytest.raises(NotImplementedError, match="attention over jagged tensors.*pad them"):
        F.scaled_dot_product_attention(nested, nested, nested)
    x = torch.ones(1, 1, 2, 2, device="cuda")
    settings = torch.backends.cuda.SDPAParams(x, x, x, None, 0.0, False, False)
    assert not torch.backends.cuda.can_use_cudnn_attention(settings)


CAUSAL = """
    import torch
    from torch.nn import functional as F
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    x = torch.arange(12.0, device="cuda:1").view(1, 1, 3, 4).requires_grad_()
    for bias in (causal_lower_right(2, 3), causal_upper_left(2, 3), causal_upper_left(3, 3)):
        q = x[:, :, : bias.seq_len_q]
        out = F.scaled_dot_product_attention(q, x, x, attn_mask=bias)
        mask = bias._materialize("cuda:1")
        assert out.device == mask.device == x.device
        assert torch.allclose(out, F.scaled_dot_product_attention(q, x, x, mask))
        out.sum().backward()
    print(x.grad.device)
"""


def test_causal_biases_of_a_type_of_its_own(gpus):
    """A language model would end where it makes its mask."""
    exec(textwrap.dedent(CAUSAL), {})


@pytest.mark.slow
def test_causal_biases_imported_after_the_start(run):
    """A language model would end where it makes its mask, depending on how late it imports the type."""
    assert run(CAUSAL, "-m", "practice_gpus", "-n", "2") == "cuda:1\n"


def test_torchscript_compiles_functions_that_check_for_overrides(gpus):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Softmax(dim=1)).cuda()
    x = torch.ones(2, 4, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(net)
    assert scripted(x).is_cuda and torch.equal(scripted(x), net(x))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_traced_modules_learn_on_the_gpu_and_load_there(gpus):
    """Tracing a convolution would end the program: its result was lost on the way."""

    def last_loss(device):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.ReLU(), nn.Flatten())
        x = torch.arange(16.0).view(2, 1, 8).to(device)
        traced = torch.jit.trace(net.to(device), x)
        optimizer = torch.optim.SGD(traced.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            loss = traced(x).square().sum()
            loss.backward()
            optimizer.step()
        file = io.BytesIO()
        torch.jit.save(traced, file)
        file.seek(0)
        again = torch.jit.load(file, map_location=device)
        assert torch.equal(again(x), traced(x)) and again(x).device == x.device
        return loss.item()

    assert last_loss("cuda:1") == last_loss("cpu")


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_torchscript_that_asks_for_devices_runs_as_it_is_and_says_so(gpus):
    """Its results would be on the wrong device, or the driver be missing; the program could go on."""

    def back(x):
        return (x * 2).cpu()

    def made(x):
        return x + torch.arange(3, device=x.device)

    def written(x):
        return x + torch.ones(3, device="cuda:1")

    x = torch.ones(3, device="cuda:1")
    compilers = {"script": torch.jit.script, "trace": lambda code: torch.jit.trace(code, (x,))}
    for kind, code in (("trace", back), ("trace", made), ("script", back), ("script", written)):
        with pytest.warns(UserWarning, match=f"torch.jit.{kind}: the code asks for devices"):
            new = compilers[kind](code)
        for _ in range(3):
            assert new(x).device == code(x).device and torch.equal(new(x), code(x))
    assert torch.jit.trace(lambda x: x * 2, (x,))(x).device == x.device


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_an_error_inside_torchscript_keeps_its_words(gpus):
    """The interpreter drops the message of what is raised in Python: nobody would know that devices were mixed."""

    def add(a, b):
        return a + b

    here, there = torch.ones(2, 3, device="cuda:0"), torch.ones(2, 3, device="cuda:1")
    for code, given, words in (
        (torch.jit.script(add), (here, there), "cuda:0 and cuda:1!"),
        (torch.jit.script(nn.Linear(3, 3)), (here,), "wrapper_CUDA_addmm"),
        (torch.jit.trace(nn.Linear(3, 3).cuda(), here), (there,), "wrapper_CUDA_addmm"),
    ):
        expected = f"RuntimeError: Expected .* same device.*{words}"
        for _ in range(3):
            with pytest.raises(RuntimeError, match=expected):
                code(*given)
    with pytest.raises(RuntimeError, match="RuntimeError: The size of tensor a"):
        torch.jit.script(add)(torch.ones(2), torch.ones(3))


def test_offsets_of_jagged_tensors_go_with_their_values(gpus):
    """Offsets stay on the CPU, and a program that reads them fails on the first GPU only."""
    ragged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    moved = ragged.to("cuda:1")
    assert moved.offsets().device == moved.device == torch.device("cuda:1")
    assert (moved + moved.clone()).to_padded_tensor(0.0).shape == (2, 2, 3)
    assert moved.cpu().offsets().device.type == "cpu"
    offsets = torch.tensor([0, 1, 3])
    with pytest.raises(AssertionError, match="values.device=cuda:0 and offsets.device=cpu"):
        torch.nested.nested_tensor_from_jagged(torch.ones(3, 2, device="cuda"), offsets=offsets)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_cudnn_takes_states_that_are_contiguous(gpus, kind):
    """A state that was transposed passes here, and cuDNN refuses it."""
    layer = getattr(torch.nn, kind)(3, 4, 2).cuda()
    state = torch.ones(2, 2, 4, device="cuda").transpose(0, 1)
    states = (state, state) if kind == "LSTM" else state
    with pytest.raises(RuntimeError, match="rnn: hx is not contiguous"):
        layer(torch.ones(5, 2, 3, device="cuda"), states)


def test_batch_norm_over_all_ranks_is_that_of_one(gpus):
    """`SyncBatchNorm`, which converted models of DDP have, is refused, or trains on other numbers than BatchNorm."""
    import torch.distributed as dist

    x = torch.randn(4, 3, 5, device="cuda", requires_grad=True)
    y = x.detach().clone().requires_grad_()
    plain = torch.nn.BatchNorm1d(3).cuda()
    of_all = torch.nn.SyncBatchNorm(3).cuda()
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        kernels = torch.nn.modules._functions.SyncBatchNorm.apply
        state = (of_all.running_mean, of_all.running_var, of_all.eps, 0.1, dist.group.WORLD, 1)
        out = kernels(y, of_all.weight, of_all.bias, *state)
        (out**3).sum().backward()
    finally:
        dist.destroy_process_group()
    (plain(x) ** 3).sum().backward()
    assert y.grad.device == out.device == torch.device("cuda:0")
    torch.testing.assert_close(y.grad, x.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(of_all.weight.grad, plain.weight.grad, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(of_all.running_var, plain.running_var)
