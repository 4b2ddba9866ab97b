"""notebooks/scripts: training that can be resumed, and training in several processes."""

import datetime
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DistributedSampler

from course import gpt, scripts
from course.lesson10.exercises import fsdp

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "notebooks" / "scripts"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def script(name):
    spec = importlib.util.spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


train = script("train")


def parsed(*args):
    """Return what train.py makes of these words of its command line."""
    return train.arguments().parse_args(list(map(str, args)))


@pytest.fixture
def run(capsys, monkeypatch):
    """Run train.py in this process, on the CPU, with 100 images and 50 to test; returns the lines that it printed."""
    shapes = train.shapes
    monkeypatch.setattr(train, "shapes", lambda n, seed=0: shapes(50 if seed else n, seed))

    def run(*args):
        train.main(parsed("--device", "cpu", "--images", 100, *args))
        return capsys.readouterr().out.splitlines()

    return run


def in_child(*command, **more):
    line = [sys.executable, *map(str, command)]
    options = {"env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(line, **options, **more)


def weights(path):
    return torch.load(path, weights_only=True)["model"]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- train.py


@pytest.mark.slow
def test_the_network_passes_93_percent_as_a_script_run_from_another_folder(tmp_path):
    done = in_child(SCRIPTS / "train.py", "--device", "cpu", "--epochs", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracy = float(re.findall(r"epoch 3: .*accuracy ([\d.]+)%", done.stdout)[0])
    assert accuracy > 93


def test_a_run_prints_results_and_times_on_lines_of_their_own(run):
    lines = run("--epochs", 2)
    assert lines[0] == "device cpu: 100 images of shapes, 0 of 2 epochs done"
    assert re.fullmatch(r"epoch 1: loss 2\.\d{3}, test accuracy \d+\.\d%", lines[1])
    assert re.fullmatch(r"  \d+\.\d s, \d+ images per second", lines[2])
    assert lines[3].startswith("epoch 2: ") and len(lines) == 5
    again = run("--epochs", 2)
    assert [lines[0], lines[1], lines[3]] == [again[0], again[1], again[3]]
    assert run("--epochs", 1, "--seed", 1)[1] != lines[1]


def test_a_resumed_run_ends_bit_for_bit_like_one_without_a_stop(run, tmp_path):
    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    without_stop = run("--epochs", 3, "--checkpoint", whole)
    run("--epochs", 1, "--checkpoint", parts)
    assert not same(weights(whole), weights(parts))
    lines = run("--epochs", 3, "--checkpoint", parts, "--resume")
    assert lines[0].endswith("1 of 3 epochs done")
    assert lines[1::2] == without_stop[3::2]
    assert same(weights(whole), weights(parts))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts.pt", "whole.pt"]
    [line] = run("--epochs", 3, "--checkpoint", parts, "--resume")
    assert line == lines[0].replace("1 of", "3 of")


def test_a_bfloat16_run_goes_on_where_only_float16_is_fast(run, tmp_path):
    """Begun on an H100, resumed on a T4: the first run's scaler is off and saves nothing."""
    path = tmp_path / "run.pt"
    run("--epochs", 1, "--amp", "--checkpoint", path)
    args = parsed("--device", "cpu", "--images", 100, "--amp", "--checkpoint", path, "--resume")
    model = train.SmallCNN(10)
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    parts = {"model": model, "optimizer": torch.optim.Adam(model.parameters()), "scaler": scaler}
    assert train.load(path, args, parts) == 1
    assert scaler.get_scale() == 65536


def test_a_checkpoint_is_written_whole_or_not_at_all(run, tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    run("--epochs", 1, "--checkpoint", path)
    content = path.read_bytes()

    def torn(state, file):
        Path(file).write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", torn)
    with pytest.raises(OSError, match="No space"):
        run("--epochs", 2, "--checkpoint", path, "--resume")
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_no_checkpoint_is_refused(run, tmp_path):
    (tmp_path / "text.pt").write_text("hello")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"model": train.SmallCNN}, tmp_path / "code.pt")
    expected = {
        "text.pt": "no whole checkpoint",
        "list.pt": "not a checkpoint of this script",
        "code.pt": "Weights only load failed",
        "none.pt": "No such file",
    }
    for name, words in expected.items():
        with pytest.raises(ValueError, match=rf"--resume: cannot go on from .*{name}.*{words}"):
            run("--checkpoint", tmp_path / name, "--resume")


@pytest.mark.parametrize("other", [("--lr", "0.1"), ("--amp",)])
def test_a_resumed_run_must_be_the_same_run(run, tmp_path, other):
    run("--epochs", 1, "--checkpoint", tmp_path / "run.pt")
    name = other[0].strip("-").replace("-", "_")
    with pytest.raises(ValueError, match=rf"its {name} is .*, this run's is"):
        run("--epochs", 2, "--checkpoint", tmp_path / "run.pt", "--resume", *other)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--epochs", "0"], "--epochs takes a number above 0; got 0"),
        (["--images", "-1"], "n: .*got -1"),
        (["--device", "cuda", "--disable-cuda"], "--disable-cuda"),
        (["--resume"], "--resume needs --checkpoint"),
        (["--checkpoint", "no/such/folder/run.pt"], "--checkpoint takes .*no/such/folder"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(run, args, words):
    with pytest.raises(ValueError, match=words.replace("/", r"[/\\]")):
        run(*args)


# --- ddp.py


@pytest.fixture(scope="module")
def ddp(tmp_path_factory):
    """One run of ddp.py with two processes on the CPU: (finished process, its results, the folder of its files)."""
    folder = tmp_path_factory.mktemp("ddp")
    files = ("--out", folder / "results.json", "--checkpoint", folder / "weights.pt")
    how = ("--disable-cuda", "--check", "--pieces", 101, "--epochs", 2)
    done = scripts.run("ddp.py", *how, *files, processes=2, cwd=folder)
    # gloo may abort at the very end, after everything is written: judge by the results
    assert (folder / "results.json").exists(), done.text
    return done, json.loads((folder / "results.json").read_text()), folder


def test_two_processes_have_the_gradients_of_one(ddp):
    done, results, _ = ddp
    assert results["world_size"] == 2 and results["backend"] == "gloo"
    assert "to_ddp: the course's own, until you keep yours" in done.text.splitlines()
    assert results["gradients_equal"] is True
    assert re.search(r"^gradients equal: True, within \de-1\d$", done.text, re.M)
    assert results["weights_equal"] is True
    assert "weights of all ranks equal: True" in done.text.splitlines()
    assert results["ring_equal"] is True
    assert results["checkpoint_equal"] is True
    assert [rank["device"] for rank in results["ranks"]] == ["cpu", "cpu"]
    assert "tokens" not in done.text, "two ranks on one CPU say nothing about two GPUs"


def test_two_processes_learn_what_one_learns_with_their_batches_joined(ddp):
    """The oracle is one process that takes the pieces of both ranks as one batch.

    AdamW divides by tiny numbers, which amplifies rounding. Without `set_epoch` the weights would hardly tell, so the
    pieces of each epoch are compared, too.
    """
    _, results, folder = ddp
    module = script("ddp")
    torch.manual_seed(0)
    words = module.course_words()
    model = module.FlatGPT(words)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    dataset = module.pieces(words, model, 101)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    samplers = [DistributedSampler(dataset, num_replicas=2, rank=rank) for rank in (0, 1)]
    for epoch in range(2):
        for rank, sampler in enumerate(samplers):
            sampler.set_epoch(epoch)
            assert results["ranks"][rank]["shards"][epoch] == list(sampler)[:8]
        a, b = (torch.tensor(list(sampler)).split(16) for sampler in samplers)
        for batch in (torch.cat(pair) for pair in zip(a, b, strict=True)):
            optimizer.zero_grad()
            module.loss_of(model, *dataset[batch]).backward()
            optimizer.step()
    saved = weights(folder / "weights.pt")
    for name, value in model.state_dict().items():
        assert (saved[name] - value).norm() <= 0.15 * (value - start[name]).norm(), name


@pytest.mark.parametrize(
    ("gpus", "nccl", "hidden"), [(2, True, False), (1, True, True), (2, False, True)]
)
def test_ddp_hides_gpus_that_its_processes_cannot_share(monkeypatch, gpus, nccl, hidden):
    """Two processes on one GPU end in an error of NCCL; PyTorch for Windows has none, however many GPUs there are."""
    module = script("ddp")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(module.dist, "is_nccl_available", lambda: nccl)
    module.hide_gpus(disable_cuda=False)
    assert (os.environ["CUDA_VISIBLE_DEVICES"] == "") is hidden


def test_pieces_are_followed_by_the_next_word():
    """A piece whose labels are its own words would teach the model to copy."""
    module = script("ddp")
    words = "a b c d e a b c d".split()
    model = module.TinyGPT(words, width=4, heads=1, layers=1, context=3)
    pieces = module.pieces(words, model, 5)
    assert [[x.tolist(), y.tolist()] for x, y in pieces] == [
        [[0, 1, 2], [1, 2, 3]],
        [[3, 4, 0], [4, 0, 1]],
    ]


@pytest.mark.parametrize(
    ("name", "world", "args", "words"),
    [
        ("ddp", "2", ["--pieces", "31"], "--pieces takes at least 32, a batch .*; got 31"),
        ("ddp", "2", ["--out", "no/such/folder/r.json"], "--out takes"),
        ("shard", "5", [], "8 texts do not divide by 5"),
        ("shard", "0", [], "torchrun --standalone --nproc-per-node=4 shard.py"),
        ("shard", "4", ["--width", "201"], "--width takes a multiple of the 4 heads; got 201"),
        ("shard", "4", ["--steps", "0"], "--steps takes a number above 0; got 0"),
        ("shard", "4", ["--steps", "1"], "--steps takes at least 2"),
        ("shard", "4", ["--block", "no.py"], "--block takes a file .* got no.py"),
        ("shard", "4", ["--ddp", "no.py"], "--ddp takes a file with a function to_ddp; got no.py"),
        ("shard", "4", ["--out", "no/such/folder/r.json"], "--out takes"),
    ],
)
def test_what_does_not_fit_is_refused_before_processes_wait(
    monkeypatch, tmp_path, name, world, args, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", world)
    module = script(name)
    with pytest.raises(ValueError, match=words):
        module.check(module.arguments().parse_args(args))


@pytest.fixture
def started(monkeypatch):
    """Return a function that starts a script as one of two processes beside two GPUs: its device, what it asks for."""

    def started(name, nccl):
        module = script(name)
        asked = []

        def init(backend, timeout=None, **_):
            asked.append((backend, timeout))

        monkeypatch.setenv("LOCAL_RANK", "1")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
        monkeypatch.setattr(module.dist, "is_nccl_available", lambda: nccl)
        monkeypatch.setattr(module.dist, "init_process_group", init)
        return module.start(disable_cuda=False), *asked

    return started


# --- shard.py

OWN = inspect.getsource(fsdp.reference)
DDP = "from course.lesson06.exercises import to_ddp"
SMALL = ("--disable-cuda", "--width", 36, "--layers", 2, "--batch-size", 12, "--steps", 5)


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    """One run of shard.py with three processes: (its results, the folder of its checkpoint, how it ended)."""
    folder = tmp_path_factory.mktemp("shard")
    (folder / "own.py").write_text(f"import torch\n\n{OWN}\n\n{DDP}")
    how = "--block own.py --ddp own.py --tiny --checkpoint saved --die 1 --out results.json"
    where = {"processes": 3, "cwd": folder}
    done = scripts.run("shard.py", *SMALL, *how.split(), **where)
    assert (folder / "results.json").exists(), done.text
    return json.loads((folder / "results.json").read_text()), folder / "saved", done


def small_model():
    return script("shard").new_model(gpt.course_words(), width=36, layers=2)


def test_three_uneven_shards_hold_everything_once_and_learn_what_one_process_learns(shard):
    """1,193 rows of the last layer over three ranks are 398, 398 and 397: no number is lost or held twice."""
    results, *_ = shard
    size = 4 * sum(weight.numel() for weight in small_model().parameters())
    held = {kind: [rank[kind] for rank in results["ranks"]] for kind in results["ranks"][0]}
    assert {kind: sum(many) for kind, many in held.items()} == {
        "parameters": size,
        "gradients": size,
        "optimizer": 2 * size,
    }
    assert len(set(held["parameters"])) == 2 and max(held["parameters"]) < 0.4 * size
    assert results["losses"][-1] < results["losses"][0]
    assert results["difference"] < 1e-5
    assert results["alone"] == pytest.approx(results["losses"], abs=1e-5)


def test_ddp_learns_the_same_and_holds_everything_on_each_rank(shard):
    """It is what sharding is compared with: the same batches, by the learner's to_ddp, in the same group."""
    results, *_ = shard
    size = 4 * sum(weight.numel() for weight in small_model().parameters())
    assert results["ddp"] == pytest.approx(results["losses"], abs=1e-5)
    assert results["ddp_bytes"] == {"parameters": size, "gradients": size, "optimizer": 2 * size}
    speeds = [*results["tokens_per_s"].values(), results["tiny_tokens_per_s"]]
    assert len(speeds) == 4 and min(speeds) > 0


def test_a_learners_block_gives_real_processes_the_gradients_of_whole_blocks(shard):
    assert shard[0]["own"]["blocks"] == 2 and shard[0]["own"]["difference"] < 1e-7


@pytest.mark.slow
def test_a_learners_block_that_forgets_the_mean_is_seen(tmp_path):
    """Else the lesson would praise any function that a learner keeps."""
    own, out = tmp_path / "own.py", tmp_path / "results.json"
    own.write_text(f"import torch\n\n{OWN.replace(' / comm.ranks', '')}")
    how = (*SMALL, "--block", own, "--out", out)
    scripts.run("shard.py", *how, processes=2)
    assert json.loads(out.read_text())["own"]["difference"] > 1e-5


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_one_process_loads_what_three_saved_and_is_told_of_a_missing_shard(shard, tmp_path):
    _, saved, _ = shard
    module, model = script("shard"), small_model()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    state = {"model": model.state_dict()}
    module.checkpoint.load(state, checkpoint_id=saved)
    changed = [not torch.equal(value, start[name]) for name, value in state["model"].items()]
    assert all(changed)
    partial = shutil.copytree(saved, tmp_path / "partial")
    (partial / "__1_0.distcp").unlink()
    with pytest.raises(module.checkpoint.CheckpointException) as caught:
        module.checkpoint.load(state, checkpoint_id=partial)
    [(reason, _)] = caught.value.failures.values()
    assert isinstance(reason, FileNotFoundError) and "__1_0.distcp" in str(reason)


@pytest.mark.parametrize("nccl", [False, True])
def test_no_process_waits_longer_than_a_minute_for_one_that_hangs(nccl, started):
    """As the lesson says; by default it would be ten, or thirty with gloo."""
    _, asked = started("shard", nccl)
    assert asked == ("nccl" if nccl else "gloo", datetime.timedelta(minutes=1))


def test_when_a_rank_dies_the_others_end_too_and_the_launcher_names_it(shard):
    *_, done = shard
    assert done.returncode != 0
    assert "rank 1 ends: this rank fails on purpose\n" in done.text
    assert "Root Cause" in done.text, done.text
    assert "127.0.0.1" not in "".join(re.findall(r"rank \d ends: .*", done.text))
