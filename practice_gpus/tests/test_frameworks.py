"""What frameworks ask of GPUs: whoever tests them here would otherwise be refused, or told the wrong thing."""

import os

import pytest
import torch

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
SHARDED = """
    import os, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from practice_gpus import practice_gpus

    def train(rank, device, port):
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=2)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        if device == "cuda":
            torch.cuda.set_device(rank)
            fully_shard(model.cuda())
        else:
            model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for _ in range(2):
            loss = model(torch.randn(4, 4).to(device)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        total = loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(total.device, total.item(), flush=True)
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.start_processes(train, ("cpu", "29611"), nprocs=2, start_method="fork")
        practice_gpus(2).start()
        assert not torch.cuda.is_initialized()
        mp.start_processes(train, ("cuda", "29612"), nprocs=2, start_method="fork")
"""


@forks
@pytest.mark.slow
def test_fsdp2_on_two_forked_ranks_has_the_losses_of_the_cpu(run):
    """A notebook launcher forks before the first use of CUDA; FSDP2 moved weights to the CPU, silently."""
    (cpu, first), (gpu, second) = (line.split() for line in run(SHARDED).splitlines())
    assert (cpu, gpu) == ("cpu", "cuda:0") and float(first) == pytest.approx(float(second), 1e-6)


TENSORS = """
    import os, torch, torch.distributed as dist, torch.multiprocessing as mp
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, empty, init_device_mesh
    from torch.nn.functional import scaled_dot_product_attention as attention
    from practice_gpus import practice_gpus

    def work(rank):
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29613"}
        dist.init_process_group("nccl", rank=rank, world_size=2)
        torch.cuda.set_device(rank)
        torch.manual_seed(rank)
        mesh = init_device_mesh("cuda", (2,))
        halves = empty(8, device_mesh=mesh, placements=[Shard(0)]).uniform_().full_tensor()
        copies = [torch.empty(8, device="cuda") for _ in range(2)]
        dist.all_gather(copies, empty(8, device_mesh=mesh, placements=[Replicate()]).normal_().to_local())
        assert len(set(halves.tolist())) == 8 and torch.equal(*copies)
        x = torch.rand(2, 4, 8, 16, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
        heads, whole = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_(), x.requires_grad_()
        for each in (heads, whole):
            out = attention(each, each, each, is_causal=True)
            out.sum().backward()
        torch.testing.assert_close(heads.grad.full_tensor(), whole.grad)
        counts = torch.tensor([3, -4]).cuda() + rank
        dist.all_reduce(counts, op=dist.ReduceOp.AVG)
        assert counts.tolist() == [3, -3], "Lightning's mean of a count, for which gloo has none"
        print("right", flush=True)
        dist.destroy_process_group()

    if __name__ == "__main__":
        with practice_gpus(2):
            mp.start_processes(work, nprocs=2, start_method="fork")
"""


@forks
@pytest.mark.slow
def test_random_numbers_and_attention_of_a_sharded_tensor(run):
    """PyTorch's examples of FSDP2 and tensor parallelism draw weights on shards and attend by heads; both failed."""
    assert run(TENSORS).count("right") == 2


SPLIT = """
    import os, torch, torch.distributed as dist, torch.multiprocessing as mp
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from practice_gpus import practice_gpus

    class Split(nn.Module):
        def __init__(self, first, second):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8).to(first), nn.Linear(8, 2).to(second)

        def forward(self, x):
            return self.second(self.first(x.to(self.first.weight.device)).to(self.second.weight.device))

    def work(rank, port, devices):
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        dist.init_process_group("nccl" if devices else "gloo", rank=rank, world_size=2)
        torch.manual_seed(0)
        model = DistributedDataParallel(Split(*devices[rank] if devices else "cpu cpu".split()))
        torch.manual_seed(rank)
        for _ in range(3):
            model(torch.randn(4, 8)).square().sum().backward()
        grads = [p.grad for p in model.parameters()]
        if rank == 0:
            print([str(g.device) for g in grads][::2], sum(g.sum().item() for g in grads), flush=True)
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.start_processes(work, ("29614", None), nprocs=2, start_method="fork")
        practice_gpus(4).start()
        two = ("cuda:0", "cuda:1"), ("cuda:2", "cuda:3")
        mp.start_processes(work, ("29615", two), nprocs=2, start_method="fork")
"""


@forks
@pytest.mark.slow
def test_ddp_of_a_module_on_two_devices_has_the_gradients_of_the_cpu(run):
    """PyTorch's tutorial combines DDP with a model on two GPUs; its buckets held tensors of both, and failed."""
    cpu, gpu = (line.rpartition(" ") for line in run(SPLIT).splitlines())
    assert gpu[0] == "['cuda:0', 'cuda:1']" and float(cpu[2]) == pytest.approx(float(gpu[2]), 1e-5)


def test_a_state_that_a_real_gpu_saved_seeds_the_generator(gpus):
    """Sixteen bytes, a seed and an offset: whoever resumes a checkpoint of a GPU was told of a wrong size."""
    state = torch.tensor([7, 0]).view(torch.uint8)
    torch.cuda.set_rng_state(state)
    first = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(7)
    assert torch.equal(first, torch.rand(3, device="cuda"))
    torch.cuda.set_rng_state(torch.tensor([7, 4]).view(torch.uint8))
    assert not torch.equal(first, torch.rand(3, device="cuda"))


def test_memory_of_a_rank_of_sixty_four(run):
    """Whoever plans a large training asks what a rank needs: a sixty-fourth of parameters and optimizer."""
    said = run("""
        import torch, torch.distributed as dist
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore
        from practice_gpus import practice_gpus
        practice_gpus(values=False, memory="80 GiB").start()
        dist.init_process_group("fake", rank=0, world_size=64, store=FakeStore())
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(4)])
        for layer in model.cuda():
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(8, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(torch.cuda.memory_allocated() / 2**20)
    """)
    assert 3 * 16 / 64 <= float(said) < 3 * 16 / 64 + 0.1


@forks
def test_after_its_first_use_a_forked_process_has_no_cuda(run):
    """CUDA is lost to such a process: tensors that it inherits fail there, and so they do here."""
    said = run("""
        import os, torch
        from practice_gpus import practice_gpus
        with practice_gpus():
            x = torch.ones(2, device="cuda")
            if os.fork() == 0:
                try:
                    x + 1
                except torch.AcceleratorError as error:
                    print(str(error).splitlines()[0], error.error_code, torch.cuda.is_initialized(), flush=True)
                os._exit(0)
            os.wait()
    """)
    assert said.strip() == "CUDA error: initialization error 3 False"


def test_fake_tensors_of_a_gpu_have_its_device_and_no_memory(gpus):
    """DTensor asks them for the shapes of its results."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x = torch.ones(4, device="cuda:1") @ torch.ones(4, 2).to("cuda:1")
        assert str(x.device) == "cuda:1" and torch.cuda.memory_allocated(1) == 0
        weight = torch.ones(2, device="cuda", requires_grad=True)
        with pytest.raises(NotImplementedError, match="backward pass of fake tensors"):
            weight.sum().backward()


CORES = {(6, 0): 64, (7, 0): 64, (7, 5): 64, (8, 0): 64}  # of one SM; 128 in all others


def test_a_card_has_the_properties_of_its_data_sheet(imitated):
    """What passes on a stand-in for a T4 would fail on the T4: bfloat16, flash attention, FP8."""
    import torch

    from practice_gpus.cards import CARDS

    for name, card in CARDS.items():
        with imitated(card=name):
            gpu = torch.cuda.get_device_properties(0)
        cores = gpu.multi_processor_count * CORES.get((gpu.major, gpu.minor), 128)
        sheet = (
            card.fp32 if name != "H20 (96 GB)" else 39.5
        )  # its sheet says 44, more than its clock
        assert 2e-9 * cores * gpu.clock_rate == pytest.approx(sheet, rel=0.04), name
        bandwidth = 2e-6 * gpu.memory_clock_rate * gpu.memory_bus_width / 8
        assert bandwidth == pytest.approx(card.bandwidth, rel=0.04), name
    with imitated(card="T4"):
        assert torch.cuda.get_device_capability() == (7, 5)
        assert torch.cuda.get_device_name() == "Tesla T4"
        assert not torch.cuda.is_bf16_supported(including_emulation=False)
        assert torch.cuda.get_device_properties(0).shared_memory_per_block_optin == 65536
