"""Practice GPUs leave PyTorch as they found it."""

import gc
import os
import pickle
import sys
import threading
import unittest

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.flop_counter import FlopCounterMode

from practice_gpus import practice_gpus, session
from practice_gpus.settings import Settings

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="these GPUs are real")
PLACES = (
    torch,
    torch.cuda,
    torch._C,
    torch.Tensor,
    torch.UntypedStorage,
    torch.accelerator,
    torch.cuda.memory,
    torch.autograd,
    torch.nn.functional,
    torch._tensor,
    torch.functional,
    torch.overrides,
    threading.Thread,
    torch.serialization,
    torch._C._nn,
    torch._C._autograd,
    torch.nn.parallel._functions,
    torch.cuda.random,
    torch.backends.cuda,
    torch.backends.cudnn,
    torch.cuda.nccl,
    torch.cuda.streams,
    torch.distributed,
)


def state():
    """Everything that practice GPUs might change, and how PyTorch behaves."""
    names = {(str(place), name): value for place in PLACES for name, value in vars(place).items()}
    return names, (
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch.get_default_device(),
        torch.cuda.is_available(),
        torch.ones(2).device,
        threading.active_count(),
    )


def assert_same(first, second):
    assert first[1] == second[1] and first[0].keys() == second[0].keys()
    assert [key for key, value in first[0].items() if second[0][key] is not value] == []


@pytest.fixture(autouse=True)
def nothing_left():
    with practice_gpus(asynchronous=True):
        pass  # PyTorch imports some of its modules late
    before = state()
    yield
    assert_same(before, state())
    assert not session.active


def test_two_hundred_times_without_a_leak():
    """Beside torch.compile each time left a longer pattern of the files that it doesn't trace."""
    import torch._dynamo  # noqa: F401

    def cycle(count):
        for i in range(count):
            with practice_gpus(n=1):
                if i % 20 == 0:
                    torch.ones(2, device="cuda").sum().item()
        gc.collect()
        return len(gc.get_objects())

    first = cycle(30)
    assert cycle(200) - first < 100  # less than one object each time


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, SystemExit])
def test_exceptions_pass(kind):
    with pytest.raises(kind), practice_gpus(asynchronous=True):
        torch.ones(2, device="cuda").mul_(2)
        raise kind


def test_a_failing_start_changes_nothing(monkeypatch):
    patches = sys.modules[
        "practice_gpus.pytorch.patches"
    ]  # the room exports its function of that name
    monkeypatch.setattr(patches, "generator_class", lambda machine: 1 / 0)
    before = state()
    with pytest.raises(ZeroDivisionError):
        practice_gpus().start()
    assert_same(before, state())


def test_start_again_leaves_one():
    first = practice_gpus(2).start()
    x = torch.ones(2, device="cuda:1")
    second = practice_gpus(2).start()  # the cell runs again
    assert len(session.active) == 1 and x.device.index == 1
    third = practice_gpus(1).start()
    assert len(session.active) == 1 and torch.cuda.device_count() == 1 and x.device.type == "cpu"
    for each in (first, second, third, third):
        each.stop()
    assert not torch.cuda.is_available() and (x + torch.ones(2)).tolist() == [2, 2]


def test_nesting():
    with practice_gpus(2):
        x = torch.ones(2, device="cuda:1")
        with practice_gpus(1):
            assert torch.cuda.device_count() == 1 and torch.ones(2, device="cuda").is_cuda
        assert torch.cuda.device_count() == 2 and (x + 1).device.index == 1


def test_decorator_counts_anew_each_time():
    @practice_gpus(n=3)
    def count():
        """Docstring."""
        torch.ones(1, device="cuda")
        return torch.cuda.device_count(), torch.cuda.memory_allocated()

    assert count() == count() == (3, 0) and count.__doc__ == "Docstring."


def test_tensors_from_inside_are_ordinary_afterwards():
    with practice_gpus():
        model = torch.nn.Linear(2, 2).cuda()
        y = model(torch.ones(1, 2, device="cuda"))
    assert y.device.type == "cpu" and "cuda" not in repr(y)
    assert model(torch.ones(1, 2)).sum().item() == y.sum().item()
    y.sum().backward()
    assert y.detach().numpy().shape == (1, 2)


def test_default_device_goes_back():
    with practice_gpus():
        torch.set_default_device("cuda")
    assert torch.ones(1).device.type == "cpu"


def test_threads_started_inside_have_them_and_others_have_not():
    seen = []
    go = threading.Event()

    def look():
        go.wait()
        seen.append(torch.cuda.is_available() and torch.ones(2, device="cuda").device.type)

    with practice_gpus():
        inside = threading.Thread(target=look)
        inside.start()
        go.set()
        inside.join()
    outside = threading.Thread(target=look)
    outside.start()
    outside.join()
    assert seen == ["cuda", False]


def pretend_gpus(monkeypatch, *computing):
    """Let PyTorch report real GPUs; each of them computes with this build, or does not."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(computing))
    monkeypatch.setattr(session, "computes", lambda index: computing[index])


def test_does_not_step_aside_for_a_gpu_without_code_in_this_build(monkeypatch):
    pretend_gpus(monkeypatch, True, False, True)  # a T4, a P100, an H200
    with practice_gpus(1) as machine:
        assert machine.real
    with practice_gpus(2) as machine:
        assert not machine.real and torch.cuda.device_count() == 2


def test_steps_aside_for_real_gpus(monkeypatch):
    pretend_gpus(monkeypatch, True, True)
    before = state()
    with practice_gpus(2) as machine:
        assert machine.real
        assert_same(before, state())
        with pytest.raises(NotImplementedError, match="these GPUs are real"):
            machine.transfers  # noqa: B018
    with practice_gpus(3) as machine:
        assert not machine.real and torch.cuda.device_count() == 3


@pytest.mark.parametrize(
    "bad, error",
    [
        (dict(n=0), ValueError),
        (dict(n="2"), TypeError),
        (dict(n=True), TypeError),
        (dict(memory=1.5), TypeError),
        (dict(card=4090), TypeError),
        (dict(card="GTX 970"), ValueError),
        (dict(values=None), TypeError),
        (dict(clock="fast"), TypeError),
        (dict(asserts=True), ValueError),
        (dict(real="no"), ValueError),
        (dict(asynchronous=1), TypeError),
    ],
)
def test_bad_arguments(bad, error):
    with pytest.raises(error, match=next(iter(bad))):
        practice_gpus(**bad)


@pytest.mark.slow
def test_the_first_start_leaves_torch_dynamo_alone_and_dynamo_sees_nothing_of_it(run):
    run("""
        import sys, torch
        from practice_gpus import practice_gpus
        before = torch.cuda.current_stream, torch.cuda.Stream
        with practice_gpus(2):
            assert "torch._dynamo" not in sys.modules
            x = torch.ones(2, device="cuda", requires_grad=True)
            torch.optim.SGD([x], lr=1.0).zero_grad()
            interface = sys.modules["torch._dynamo.device_interface"].CudaInterface
            assert x.is_cuda and torch.cuda.device_count() == 2
        assert (interface.current_stream, interface.Stream) == before == (torch.cuda.current_stream, torch.cuda.Stream)
    """)


@pytest.mark.slow
def test_fake_copies_of_practice_tensors_do_not_end_the_process(run):
    run("""
        import torch
        from practice_gpus import practice_gpus
        from torch._subclasses.fake_tensor import FakeTensorMode
        with practice_gpus():
            x = torch.ones(2, device="cuda", requires_grad=True)
            try:
                FakeTensorMode().from_tensor(x).sum().backward()
            except (NotImplementedError, RuntimeError):
                print("refused")
            (x * 2).sum().backward()
            assert x.grad.is_cuda
    """)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_is_refused(run):
    said = run("""
        import os, torch
        from practice_gpus import practice_gpus
        with practice_gpus():
            x = torch.ones(2, device="cuda")
            if os.fork() == 0:
                try:
                    x.to("cuda:0", copy=True)
                except RuntimeError as error:
                    print(error, flush=True)
                os._exit(0)
            os.wait()
            assert x.sum().item() == 2
    """)
    assert "Cannot re-initialize CUDA in forked subprocess" in said


class Apple(torch.Tensor):
    """A tensor that says it is on an Apple GPU."""

    device = property(lambda self: torch.device("mps"))


def test_a_tensor_of_an_apple_gpu_comes_by_way_of_the_cpu():
    x = torch.ones(2).as_subclass(Apple)
    with practice_gpus(1):
        assert x.to("cuda:0").untyped_storage().device == torch.device("cuda:0")


def test_a_card_gives_its_memory_and_the_settings_reach_a_child_process():
    settings = practice_gpus(2, card="4090", asserts="sticky").settings
    assert settings.memory == int(23.64 * 2**30)
    assert Settings.from_json(settings.to_json()) == settings


def test_ended_in_the_wrong_order_nothing_stays_on():
    outer = practice_gpus(2).start()
    inner = practice_gpus(1)
    inner.__enter__()
    with pytest.warns(RuntimeWarning, match="1 turned on later"):
        outer.stop()
    assert not torch.cuda.is_available() or outer.real
    inner.__exit__(None, None, None)  # the end of the with block, late
    assert not inner.real and not session.active


def test_another_thread_is_told_where_practice_gpus_are_on():
    told = []
    go = threading.Event()

    def other():
        go.wait()
        for act in (lambda: practice_gpus(1).__enter__(), lambda: torch.ones(2, device="cuda")):
            try:
                act()
            except RuntimeError as error:
                told.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    with practice_gpus(1):
        go.set()
        thread.join()
    assert len(told) == 2 and all("thread 'MainThread'" in words for words in told)


def test_a_machine_in_a_pickle_is_refused_in_words():
    with (
        practice_gpus(1) as gpus,
        pytest.raises(TypeError, match="practice GPUs cannot be pickled"),
    ):
        pickle.dumps(gpus)


def test_beside_real_gpus_they_are_used_hidden_or_the_test_is_skipped(monkeypatch):
    monkeypatch.setattr(session, "enough_real_gpus", lambda n: True)
    with practice_gpus(1) as gpus:
        assert gpus.real
    with practice_gpus(1, real="hide") as gpus:
        assert not gpus.real and torch.ones(1, device="cuda").is_cuda
    with pytest.raises(unittest.SkipTest, match="there are real ones"):
        practice_gpus(1, real="skip").__enter__()


def test_an_outer_session_costs_an_inner_one_nothing_and_is_back_afterwards():
    """Each operator would pass through the modes of both, and a forecast inside a lesson take 40 % longer."""
    seen = []
    with practice_gpus(1) as outer:
        machine = outer.machine
        before = _get_current_dispatch_mode_stack(), _get_current_function_mode_stack()
        with practice_gpus(2):
            torch.ones(2, device="cuda:1").add(1)
            seen += [*_get_current_dispatch_mode_stack(), *_get_current_function_mode_stack()]
        assert all(mode.machine is not machine for mode in seen) and seen
        assert (_get_current_dispatch_mode_stack(), _get_current_function_mode_stack()) == before
        assert torch.ones(2, device="cuda").device == torch.device("cuda:0")


def test_modes_between_two_sessions_keep_their_places():
    """A mode of the user's own, such as a counter of FLOPs, stays on, in the same order, after an inner session."""
    with practice_gpus(1), FlopCounterMode(display=False) as counter:
        before = _get_current_dispatch_mode_stack()
        with practice_gpus(1):
            torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        assert _get_current_dispatch_mode_stack() == before
        assert counter.get_total_flops() > 0
