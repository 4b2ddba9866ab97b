"""What lessons 09 and 10 show beside their stored words: who holds what, and what a model refuses."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from course import gpt
from course.lesson09 import exercises as ex09
from course.lesson09 import figures as figures09
from course.lesson09.exercises import kv_cache
from course.lesson10 import figures, plans
from course.lesson10.exercises import plan
from course.measurements import traces
from course.pictures import moving as step_pictures
from helpers.plots import GPU


def held(axes):
    """Return {(row, column)} of the cells that are green: what the GPU of this panel holds."""
    from matplotlib.colors import to_hex

    return {
        (round(cell.get_y()), round(cell.get_x()))
        for cell in axes.patches
        if to_hex(cell.get_facecolor()).upper() == GPU
    }


def drawn(monkeypatch, draw, *args):
    """Return the Figure that `draw(*args)` shows."""
    shown = []
    monkeypatch.setattr(figures.figures, "show", lambda figure, alt: shown.append(figure))
    draw(*args)
    return shown[0]


def test_a_gpu_needs_nothing_of_another_between_the_two_matmuls(monkeypatch):
    """What a split by columns leaves on a GPU, its rows of the next matrix take: the reason for the order."""
    figure = drawn(monkeypatch, figures.show_split)
    cells = held(figure.axes[0])
    for gpu, top in enumerate((0, figures.TALL)):
        own = {(row - top, column) for row, column in cells if top <= row < top + 6}
        hidden = {column - 14 for _, column in own if 14 <= column < 20}
        down = {row for row, column in own if 22 <= column < 26}
        assert hidden == down == set(range(3 * gpu, 3 * gpu + 3))
        total = [column for _, column in own if column >= 38]
        assert len(total) == 12  # the whole sum, on every GPU


@pytest.mark.parametrize(("stages", "microbatches"), [(4, 4), (8, 16), (1, 3)])
def test_the_pipeline_never_runs_two_passes_on_a_gpu_at_once(monkeypatch, stages, microbatches):
    """The drawn schedule is the argument for the formula: work and bubble fill the time exactly."""
    shown = []
    monkeypatch.setattr(figures.vega, "show", lambda _, figure, *__: shown.append(figure))
    figures.show_pipeline(stages, microbatches)
    bars = shown[0].axes[0].patches
    end = 3 * (microbatches + stages - 1)
    for stage in range(stages):
        own = sorted(
            (round(bar.get_x()), round(bar.get_x() + bar.get_width()))
            for bar in bars
            if round(bar.get_y() + 0.45) == stage
        )
        assert len(own) == 2 * microbatches
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own)) and own[-1][1] <= end
        assert sum(b - a for a, b in own) / end == pytest.approx(
            1 - (stages - 1) / (microbatches + stages - 1)
        )


def test_the_limit_is_where_gathering_takes_as_long_as_computing(monkeypatch):
    """The page states 5,540 tokens at 50 GB/s, and that 1,024 then leave 18% of the speed."""
    shown = []
    monkeypatch.setattr(figures.vega, "show", lambda _, *rest: shown.append(rest))
    figures.show_hidden(277, 50)
    [(figure, alt, _)] = shown
    assert "100% from 5,540 on" in alt
    outline = figure.axes[0].collections[0].get_paths()[0].vertices.tolist()
    assert max(y for x, y in outline if x == 1024) == pytest.approx(18, abs=0.5)


def test_fsdp_over_all_gpus_suits_one_of_the_four_jobs(monkeypatch):
    """A hint asks why it fails the others: traffic, too few texts, activations."""
    found = {name: plans.forecast(job, job.gpus, 1, 1) for name, job in plans.JOBS.items()}
    good = [name for name, job in plans.JOBS.items() if plans.works(job, (job.gpus, 1, 1))]
    assert good == ["A"]
    assert found["B"].computing == pytest.approx(4096 / 11_542, abs=1e-4)
    assert found["C"].idle == 0.5 and not plans.fits(found["D"])
    alone = {name: (job.gpus, 1, 1) for name, job in plans.JOBS.items()}
    figure = drawn(monkeypatch, figures.show_plans, alone)
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"126", "doesn't fit", "35%", "50%"} <= set(words)
    assert "1 of 4 jobs has" in figure.get_suptitle()
    figure = drawn(monkeypatch, figures.show_plans, plan.reference)
    assert "4 of 4 jobs have" in figure.get_suptitle()


def test_a_job_without_a_plan_has_no_bars(monkeypatch):
    """Else the chart would say what is wrong with FSDP alone before anyone has tried it."""
    figure = drawn(monkeypatch, figures.show_plans, {"A": (1, 1, 1), "B": ..., "D": (1, 8, 4)})
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == ["A: no plan yet", "B: no plan yet", "C: no plan yet", "D: 1 × 8 × 4"]
    assert [bar.get_width() > 0 for bar in figure.axes[0].patches] == [False] * 3 + [True] * 2


def test_most_jobs_have_more_than_one_good_plan():
    """A plan is a choice: a good one that isn't the model answer has to pass, too."""
    good = {}
    for name, job in plans.JOBS.items():
        pairs = itertools.product([2**n for n in range(8)], repeat=2)
        splits = [(f, t, job.gpus // f // t) for f, t in pairs if f * t <= job.gpus]
        good[name] = [split for split in splits if plans.works(job, split)]
        assert plan.reference[name] in good[name]
    assert [len(splits) for splits in good.values()] == [3, 1, 2, 3]


def test_a_forecast_holds_what_the_page_states():
    """A pipeline alone loses its bubble, and nothing is counted twice."""
    job = plans.JOBS["D"]
    found = plans.forecast(job, 1, 1, 32)
    assert found.idle == pytest.approx(31 / (32 + 31)) and found.gathers == found.sums == 0
    assert found.state == 16 * 70e9 / 32 and found.activations == 34 * 4096 * 8192 * 80
    found = plans.forecast(job, 2, 8, 2)
    assert sum(found[2:]) == pytest.approx(1) and min(found[2:]) > 0
    # four all-reduces of 2 bytes over 8 neighbors, beside the compute of the same tokens
    inside = plans.forecast(job, 1, 8, 4)
    sent = 80 * 4 * 2 * 7 / 8 * 2 * 8192 / 370e9
    assert inside.sums / inside.computing == pytest.approx(sent / (6 * 70e9 / 8 / 277e12))


def test_job_a_is_worked_out_on_the_page():
    """The page states how long its GPUs compute and send, and what share of the time each split leaves them."""
    job = plans.JOBS["A"]
    compute, sent = 6 * 8e9 * 8192 / plans.RATE, 14 * 65536 * 4096 * 32
    assert f"{compute:.2f} {sent / 1e9:.0f}" == "1.42 120"
    assert f"{sent / job.inside:.2f} {sent / 50e9:.2f}" == "0.33 2.41"
    assert f"{compute / (compute + sent / 50e9):.0%}" == "37%"
    found = [plans.forecast(job, *split) for split in ((8, 1, 1), (1, 8, 1), (1, 1, 8))]
    assert [f"{each.computing:.0%}" for each in found] == ["100%", "81%", "53%"]
    assert {f"{each.state / 1e9:.0f} {each.activations / 1e9:.0f}" for each in found} == {"16 37"}


def test_every_token_of_the_experts_picture_arrives_and_comes_back():
    frames = [boxes for _, boxes in step_pictures.experts().frames]
    tokens = [[box for box in boxes if box.label.isdigit()] for boxes in frames]
    start, there, busy, back = (sorted(box.label for box in boxes) for boxes in tokens)
    assert start == there == busy == back
    assert all(int(box.y) == int(box.label) for box in tokens[1])
    assert len({(box.x, box.y) for box in tokens[1]}) == 16
    colors = {box.label: box.color for box in frames[0] if box.label.startswith("expert")}
    assert len(set(colors.values())) == 4
    assert all(box.color == colors[f"expert {box.label}"] for boxes in tokens for box in boxes)
    waits = [int(box.y) for box in frames[2] if box.label == "waits"]
    assert [start.count(str(gpu)) + waits.count(gpu) for gpu in range(4)] == [6] * 4


@pytest.fixture
def model():
    torch.manual_seed(0)
    return gpt.TinyGPT(["a", "b", "c"], width=16, heads=2, context=8).eval()


def test_a_model_names_the_place_it_does_not_know(model):
    model(torch.zeros(1, 2, dtype=torch.int64), start=6)
    for count, start in ((9, 0), (1, 8)):
        with pytest.raises(ValueError, match="no place 8: this model knows places 0 to 7"):
            model(torch.zeros(1, count, dtype=torch.int64), start=start)
    with pytest.raises(
        ValueError, match="heads is 3; a width of 16 can be cut into 1, 2, 4, 8, 16$"
    ):
        gpt.TinyGPT(["a"], width=16, heads=3)


@torch.inference_mode()
def test_one_word_at_a_time_with_a_cache_gives_the_logits_of_all_at_once(model):
    ids = torch.tensor([[0, 2, 1, 1, 0]])
    cache = {}

    def attend(layer, q, k, v):
        return kv_cache.reference(cache, layer, q, k, v)

    parts = [model(ids[:, :2], attend)]
    parts += [model(ids[:, place : place + 1], attend, start=place) for place in (2, 3, 4)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_the_stored_gpt_has_read_the_course():
    """With other parameters the first screen, and every text in lesson 09, would be word salad."""
    words, model = gpt.course_words(), gpt.trained()
    torch.manual_seed(0)
    [(x, y)] = gpt.batches(model, words, 1, size=64)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    assert loss < 1.5 < F.cross_entropy(gpt.TinyGPT(words)(x).flatten(0, 1), y.flatten())
    assert model.decode(model.encode("the GPU waits .")) == "The GPU waits."
    with pytest.raises(ValueError, match="the course has no word 'zebra'"):
        model.encode("the zebra")


def test_the_last_row_of_the_picture_is_what_the_four_steps_compute():
    model = gpt.trained()
    text = "the GPU waits for the CPU"
    q, k, _ = figures09.inside(model, text)[1][:, 2]  # layer 2, head 3
    shares = (q[-1] @ k.T / 32**0.5).softmax(-1)
    draw = figures09.look(model, text, lambda scores: scores)
    figure, words = draw(2, 3)
    drawn = torch.tensor(figure.axes[0].images[0].get_array().tolist())
    torch.testing.assert_close(drawn[-1], shares)
    assert f"{shares.max():.0%} to “{text.split()[int(shares.argmax())]}”" in words


def test_the_numbers_of_one_word_add_up_to_its_new_row():
    """A learner who checks the picture with a pencil must find the row that attention computes."""
    text, model = "put the model on the", gpt.trained()
    q, k, v = figures09.inside(model, text)[0][:, 3]  # layer 1, head 4
    scores = q[-1] @ k.T
    shares = (scores / 32**0.5).softmax(-1)
    picture = figures09.four_steps(text, scores, scores / 32**0.5, shares, v, shares @ v)
    figure, words = picture
    assert "“model”" in figure.get_suptitle() and f"{shares[2]:.0%} to “model”" in words
    drawn = [text.get_text().replace("−", "-") for text in figure.axes[0].texts]
    right = F.scaled_dot_product_attention(q[None, -1:], k[None], v[None])[0, 0, :4]
    assert [x for x in drawn if x.startswith("= ")] == [f"= {x:.2f}" for x in right.tolist()]


@torch.inference_mode()
def test_without_attention_only_the_last_word_decides():
    """The lesson takes attention away, and says that nothing before the last word counts then."""
    model = gpt.trained()
    texts = [model.encode(text) for text in ("put the model on the", "the GPU waits for the")]
    blind = [model(ids, lambda layer, q, k, v: v)[0, -1] for ids in texts]
    torch.testing.assert_close(*blind)
    assert not torch.allclose(*(model(ids)[0, -1] for ids in texts))


def test_the_scores_of_a_layer_make_six_trips():
    """The page divides six times 1.89 GB by the bandwidth; the figure must show the same six."""
    figure, words = figures09.layer(traces.case("10").between(6700, 18_000))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count("read") == texts.count("write") == 3
    assert "softmax\n5.8 ms" in texts and "softmax: read and write" in words
    assert 6 * 1.89e9 / 3.35e12 == pytest.approx(3.4e-3, abs=5e-5)
    assert 2 * 8 * 12 * 3137**2 == pytest.approx(1.89e9, rel=1e-3)


def test_the_limit_is_the_bandwidth_over_the_bytes_of_a_token():
    """The page says 5 bits for int4, and its function 154 in 16: the figure must draw the same."""
    figure, words = figures09.rates(ex09.rate.reference, 6.607e9)
    assert "bfloat16 105 of 154, int8 156 of 308, int4 197 of 493" in words
    assert "68% of its limit" in words and "330 W" in figure.axes[0].get_xlabel()


def test_a_serving_step_shows_what_the_page_says_of_84_chats_of_int4_and_of_an_h100():
    """The page's answers stand beside a figure that starts at one chat: whoever turns it must find them."""
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32_000 * 4096
    draw = figures09.a_step(ex09.tokens_per_second, weights)
    figure, words = draw(84, "A100")
    bars = [bar.get_width() for bar in figure.axes[0].patches]
    assert bars[0] == pytest.approx(bars[1], rel=0.01) and "6,481 in all" in words
    assert "at most 476" in draw(1, "A100, int4")[1] and "at most 251" in draw(1, "H100")[1]


@torch.inference_mode()
def test_layer_1_head_3_is_the_only_one_that_looks_back_at_put():
    """The page asks which head does, and says 74%."""
    text, model = "put the model on the", gpt.trained()
    heads = (qkv[:, h] for qkv in figures09.inside(model, text) for h in range(4))
    shares = [(q[-1] @ k.T / 32**0.5).softmax(-1) for q, k, _ in heads]
    first = [share[0].item() for share in shares]
    assert f"{first[2]:.0%}" == "74%" and max(first[:2] + first[3:]) < 0.5
