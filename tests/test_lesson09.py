"""Lesson 09: the GPT, its cache, and figures that compute what they show."""

import pytest
import torch
from torch.nn import functional as F

from course import gpt
from course.lesson09 import exercises as ex09
from course.lesson09 import figures as figures09
from course.lesson09.exercises import kv_cache
from course.lesson10 import figures
from course.measurements import traces


def drawn(monkeypatch, draw, *args):
    """Return the Figure that `draw(*args)` shows."""
    shown = []
    monkeypatch.setattr(figures.figures, "show", lambda figure, alt: shown.append(figure))
    draw(*args)
    return shown[0]


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
    softmax = max(event.length for event in traces.case("10").between(6700, 18_000).gpu)  # µs
    assert f"{2 * 1.89e3 / softmax:.2f}" == "0.66"  # TB/s, as the page says: a poor kernel


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


def test_the_picture_of_09b_compares_the_same_format_of_two_models():
    """Its title says an eighth of the speed: int8 beside int8, not beside another format."""
    figure, words = figures09.first_picture_b()
    assert "1/8 of the speed" in figure.get_suptitle() and "7B, int8 156" in words


@torch.inference_mode()
def test_the_gpt_writes_the_same_on_attention_by_hand():
    """The page's last cell puts the learner's attention into the GPT, which must not change what it writes."""
    model = gpt.trained()
    texts = [
        gpt.write(model, "a GPU", 12, attend=attend)
        for attend in (gpt.causal, lambda layer, q, k, v: ex09.attention(q, k, v))
    ]
    assert texts[0] == texts[1]
