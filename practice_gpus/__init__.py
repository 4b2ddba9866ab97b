"""Practice GPUs: CUDA devices simulated on the CPU, for machines that have none.

    from practice_gpus import practice_gpus

    with practice_gpus(n=2, memory="1 GiB"):          # a block; also @practice_gpus(n=2) above a function
        x = torch.ones(3, device="cuda:1")            # computed by the CPU, labeled cuda:1
    gpus = practice_gpus(n=2).start()                 # the rest of a notebook, until gpus.stop()

    @pytest.fixture                                   # device bugs show up in CI without a GPU
    def gpus():
        with practice_gpus(n=2) as machine:
            yield machine

Values are computed for real, by the CPU's kernels: training gives the CPU's numbers to the last bit. Where PyTorch
has ``n`` real CUDA GPUs, and code for them, practice steps aside (``gpus.real`` is True) and nothing is changed.

How it works: a practice tensor is a CPU tensor whose storage carries a label (`machine`). A ``TorchFunctionMode``
turns ``device=`` into labels and labels into answers (`calls`); a ``TorchDispatchMode`` compares the labels before
each operator and labels the results, in the backward pass too (`kernels`, `operators`, `rules`). Beneath ``torch.cuda``
and ``torch.accelerator`` only the functions that ask the driver are replaced (`driver`, `patches`), so PyTorch's own
code checks arguments and words texts; its installed lists say what autocast casts (`casting`) and which operators
compare devices. Each label holds a block of a replayed caching allocator (`memory`) and gives it back when its storage
dies. On an asynchronous machine operators become work for a stream's thread (`launch`, `streams`).

| covered | how far |
|---|---|
| placement | factories, ``to``, ``cuda``, ``cpu``, ``*_like``, ``new_*``, indexing, views, ``copy_``, default devices |
| modules | ``Module.to``, autograd, optimizers (foreach, fused), losses, RNNs, clipping, checkpointing, GradScaler |
| autocast | the lists of CUDA operators for half precision, float32 and the widest type; the cache of cast weights |
| several GPUs | ``nn.DataParallel`` and its parts, model parallelism, copies between devices |
| files | ``torch.save``, ``torch.load`` with ``map_location``, pickle, ``deepcopy`` |
| errors | types and words of PyTorch's CUDA build: mixed or missing devices, ``numpy()``, full memory, generators |
| memory | rounding, pools, segments, splitting, counters of ``torch.cuda`` and ``torch.accelerator``, out of memory |
| streams, events | in order, on threads if ``asynchronous``; ``set_sync_debug_mode``; counters of waits, transfers |
| refused by name | ``torch.compile``, CUDA graphs, NCCL, CUDA extensions, DLPack, memory pools and snapshots, NVML, |
| | devices under ``FakeTensorMode``, ``out=`` of ``torch.cuda.comm`` |

| differs from hardware | why |
|---|---|
| one stream of random numbers for the CPU and all GPUs; ``torch.cuda.manual_seed`` seeds it, and | |
| ``torch.cuda.default_generators`` are the CPU's | same numbers as the CPU |
| on an asynchronous machine operators that draw random numbers (dropout) wait for the queue | their order stays |
| numbers equal the CPU's, not a GPU's, to the last bit | the CPU computes them |
| memory of libraries (cuBLAS and cuDNN workspaces, the CUDA context) is not counted | it depends on the GPU |
| some operators keep other tensors for the backward pass | the CPU's kernels run |
| ``data_ptr()`` is the CPU's; a reused block may have another address | memory is the CPU's |
| after a device-side assert the device goes on working | so that a notebook survives it |
| on an asynchronous machine memory is given back only after the queued work that reads it | the CPU needs it |
| pinned memory is only marked; peer access and priorities have no effect | there is no bus |
| ``torch.device(1)`` fails on a build without CUDA; write ``torch.device("cuda", 1)`` | a C type cannot be replaced |
| ``torch.version.cuda`` and ``torch.backends.cudnn.version()`` tell the build | they are facts |
| threads that ran before practice was turned on do not see it | PyTorch's modes belong to one thread |
| in a nested machine the outer one's tensors are CPU tensors | one machine at a time |
| a user's own ``TorchFunctionMode`` does not see PyTorch's Python functions | see `casting.overridden` |
"""

from .session import practice_gpus

__all__ = ["practice_gpus"]
