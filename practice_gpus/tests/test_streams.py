"""Streams, events and work behind the caller's back."""

import contextlib
import sys
import threading
import warnings

import pytest
import torch

from practice_gpus import practice_gpus

TENTH = 100_000_000  # cycles, a tenth of a second


@contextlib.contextmanager
def busy(*streams):
    """Keep streams (default: the current one) busy until the block ends."""
    done = threading.Event()
    for stream in streams or [torch.cuda.current_stream()]:
        stream.put(done.wait)
    try:
        yield
    finally:
        done.set()


@pytest.fixture
def gpus(imitated):
    with imitated(n=2, asynchronous=True) as machine:
        yield machine


def test_calls_return_before_the_work_is_done(gpus):
    x = torch.ones(100, device="cuda")
    torch.cuda.synchronize()
    with busy():
        early = (x * 3).to("cpu", non_blocking=True)
        assert not torch.cuda.current_stream().query()
        assert early.sum() == 0  # read too early: nothing is there yet
    torch.cuda.synchronize()
    assert early.sum() == 300 and torch.cuda.current_stream().query()


@pytest.mark.parametrize(
    "read",
    [
        lambda y: y.sum().item(),
        lambda y: float(y.cpu().sum()),
        lambda y: sum(y.tolist()),
        lambda y: len(y.nonzero()) * 3,
        lambda y: float(str(y[0]).split("(")[1][:2]) * 100,
        lambda y: 300 if (y == 3).all() else 0,
    ],
)
def test_reading_a_value_waits_for_it(gpus, read):
    x = torch.ones(100, device="cuda")
    before = gpus.synchronizations
    torch.cuda._sleep(TENTH // 2)
    assert read(x * 3) == 300 and gpus.synchronizations > before


def test_with_cuda_launch_blocking_an_error_comes_at_its_own_line(imitated, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with imitated(asynchronous=True):
        scores = torch.zeros(2, 3, device="cuda")
        labels = torch.tensor([0, 5], device="cuda")
        with pytest.raises(RuntimeError, match="device-side assert"):
            torch.nn.functional.cross_entropy(scores, labels)


def test_pinned_memory_is_read_later_and_other_memory_at_once(gpus):
    for pinned, wanted in ((True, 0), (False, 10)):
        x = torch.ones(10).pin_memory() if pinned else torch.ones(10)
        with busy():
            y = x.to("cuda", non_blocking=True)
            x.zero_()
        assert y.sum().item() == wanted


def test_two_streams_overlap_and_wait_stream_orders_them(gpus):
    side = torch.cuda.Stream()
    x = torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    with busy(), torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side
        assert (torch.zeros(1, device="cuda") + 1).item() == 1  # while the other stream has work
    torch.cuda._sleep(TENTH)
    x += 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 5
    side.synchronize()
    assert y.item() == 5


def test_events_measure_the_queue(gpus):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(ValueError, match="Both events must be recorded"):
        start.elapsed_time(end)
    start.record()
    torch.cuda._sleep(4 * TENTH)
    end.record()
    assert not end.query()
    with pytest.raises(RuntimeError, match="Both events must be completed"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) > 395
    with pytest.raises(ValueError, match="enable_timing=True"):
        torch.cuda.Event().elapsed_time(end)


def test_sync_debug_mode_finds_hidden_waits(gpus):
    x = torch.ones(2, device="cuda")
    torch.cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
        x.sum().item()
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
        x.cpu()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("default")


def test_a_first_layer_without_a_gradient_for_its_input_trains(gpus):
    """Batch norm's backward leaves out the gradient of an input that needs none."""
    norm = torch.nn.BatchNorm1d(3).cuda()
    x = torch.arange(12.0).reshape(4, 3).cuda()
    (norm(x) * x).sum().backward()
    torch.cuda.synchronize()
    assert norm.bias.grad.tolist() == [18, 22, 26]


def test_the_warning_of_a_wait_names_the_line_that_waits(gpus):
    """Else `set_sync_debug_mode("warn")` tells that a script waits, and not where."""
    x = torch.ones(2, device="cuda")
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = sys._getframe().f_lineno + 1
        x.sum().item()
        bool(x[0] > 0)
        torch.ones(2).to("cuda")
    torch.cuda.set_sync_debug_mode("default")
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, first + n) for n in range(3)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_training_gives_the_same_numbers(asynchronous, imitated):
    def losses(device):
        torch.manual_seed(0)
        layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        model = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 4).to(device, non_blocking=True)).square().mean()
            loss.backward()
            optimizer.step()
            yield loss

    wanted = [loss.item() for loss in losses("cpu")]
    with imitated(2, asynchronous=asynchronous) as machine:
        got = list(losses("cuda"))
        assert machine.synchronizations == 4  # the four parameters, moved by model.to
        assert [loss.item() for loss in got] == wanted and machine.synchronizations == 9


def test_a_stream_is_idle_right_after_a_wait(gpus):
    x = torch.ones(2, device="cuda")
    for wait in (torch.cuda.synchronize, torch.cuda.current_stream().synchronize) * 200:
        x.add_(1)
        y = x * 2
        del y
        wait()
        assert torch.cuda.current_stream().query() and torch.cuda.memory_allocated() == 512


def test_random_numbers_come_in_the_order_of_the_calls(gpus):
    def draw(device, count=8):
        torch.manual_seed(0)
        x = torch.ones(1000, device=device)
        for _ in range(count // 2):
            yield torch.rand(1000, device=device)
            yield torch.nn.functional.dropout(x)

    wanted = list(draw("cpu"))
    for mine, drawn in zip(wanted, draw("cuda"), strict=True):
        torch.rand(3)  # the CPU's numbers are its own
        assert torch.equal(mine, drawn.cpu())


@pytest.mark.parametrize("arguments", [(), ("cuda",), (torch.device("cuda", 0),)])
def test_an_event_of_torch_names_its_device_first(arguments):
    with practice_gpus(2, asynchronous=True):
        start = torch.Event(*arguments, enable_timing=True)
        end = torch.cuda.Event(True)
        assert isinstance(end, torch.Event) and not isinstance(start, torch.cuda.Event)
        start.record()
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) >= 0


def test_an_event_of_another_device_is_refused(imitated):
    with imitated(2):
        with pytest.raises(NotImplementedError, match="CUDA devices only, not of cpu"):
            torch.Event("cpu")


@pytest.mark.slow
def test_a_tensor_that_is_used_while_python_ends_prints_no_traceback(run):
    """A learner's last cell would end in an error that says nothing about it."""
    program = """
        import atexit, torch
        from practice_gpus import practice_gpus
        gpus = practice_gpus(1, asynchronous=True).start()
        x = torch.ones(3, device="cuda") * 2
        torch.cuda.synchronize()
        atexit.register(lambda: print((x + 1).sum().item()))
    """
    assert run(program) == "9.0\n"
