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
turns ``device=`` into labels and labels into answers (`functions`); a ``TorchDispatchMode`` compares the labels before
each operator and labels the results, in the backward pass too (`dispatch`, `operators`, `rules`). Beneath ``torch.cuda``
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
| streams, events | in order, on threads if ``asynchronous`` and not CUDA_LAUNCH_BLOCKING=1; ``set_sync_debug_mode``; counters of waits, transfers |
| memory snapshots | ``_record_memory_history``, ``memory_snapshot``, ``_dump_snapshot``, for PyTorch's viewer |
| shapes alone | ``values=False``: nothing is computed or stored, so a step of a model of any size runs in seconds; |
| | what reads values raises, with the line, or takes ``stand_in``; sparse tensors, tracing, processes need values |
| others' code | ``torch.func``, lazy modules, sparse, jagged and typed tensors, spawned processes, the profiler |
| runs as it is | ``torch.compile``, ``torch.jit`` of code that asks for devices: the values are the same; it says so |
| refused by name | CUDA graphs, NCCL, CUDA extensions, DLPack, memory pools, NVML, strided nested tensors, |
| | devices under ``FakeTensorMode``, ``out=`` of ``torch.cuda.comm``, attention over jagged tensors, ``flex_attention``, ``foreach_map`` |

``python -m practice_gpus -n 2 script.py …`` runs a program on practice GPUs, and what it starts, too, and reports what it
copied, where it waited and how much memory it needed; ``report("script.py")`` does so in a notebook. ``pytest
--practice-gpus 2`` and ``@pytest.mark.gpus(2)`` give them to tests (`plugin`).

Counts of waits follow PyTorch's source (tests/practice/waits.csv names the place for each of 127 calls); they and
races between streams must be confirmed on hardware.

| differs from hardware | why |
|---|---|
| numbers equal the CPU's, not a GPU's, to the last bit; random ones are drawn as the CPU draws, though each | |
| device has a generator of its own (whose state has 5,056 bytes, not 16) | the CPU computes them |
| on an asynchronous machine operators that draw random numbers (dropout) wait for the queue | their order stays |
| deterministic mode asks what it asks of the CPU's kernels | the CPU's kernels run |
| workspaces of cuBLAS and cuDNN (temporary since 2.15) and the CUDA context are not counted, so that | |
| ``mem_get_info`` says that nearly all is free | they depend on the GPU |
| some operators keep other tensors for the backward pass | the CPU's kernels run |
| ``data_ptr()`` is the replayed allocator's; C code that reads there finds nothing | memory is the CPU's |
| memory snapshots hold Python's frames only, none of C++ | the CPU's code runs |
| after a device-side assert the device goes on working | so that a notebook survives it |
| memory is given back only after the queued work that reads it, so a missing ``record_stream`` goes unpunished | the queue keeps it |
| unless asynchronous, ``query()`` is True at once, also after ``non_blocking=True`` | all work is done by then |
| a stream takes any amount of work; a GPU's queue is full after about a thousand kernels | it is a list |
| the backward pass runs on the stream that is current where it is called, not on each operator's | one engine |
| pinned memory is only marked; peer access is always there, priorities have no effect | there is no bus |
| the compute capability is 8.0, whatever cards you know | one had to be chosen |
| a machine with one real GPU that asks for two practice GPUs has its ``cuda:0`` replaced | both must be alike |
| ``torch.device(1)`` fails on a build without CUDA; write ``torch.device("cuda", 1)`` | a C type cannot be replaced |
| a practice tensor is an instance of ``torch.FloatTensor``, and of ``torch.cuda.FloatTensor``, too | the same |
| ``torch.version.cuda`` and ``torch.backends.cudnn.version()`` tell the build | they are facts |
| threads that ran before practice was turned on do not see it | PyTorch's modes belong to one thread |
| in a nested machine the outer one's tensors are CPU tensors | one machine at a time |
| ``scaled_dot_product_attention`` has the CPU's kernels; ``can_use_flash_attention`` and its like are False | the same |
| a user's own ``TorchFunctionMode`` does not see PyTorch's Python functions | see `casting.overridden` |
"""

__all__ = ["practice_gpus", "report"]


def __getattr__(name):
    """Import what is asked for, and PyTorch with it, when it is: pytest loads the plugin in each run."""
    if name == "practice_gpus":
        from .session import practice_gpus as value
    elif name == "report":
        from .reports import report as value
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
