"""course.lesson07.loop: what the lanes of lesson 07 show is what a queue does."""

from course.lesson07.loop import lay_out


def test_the_gpu_works_when_it_is_asked_and_one_thing_after_another():
    spans, total = lay_out([("Python", "asks", 2), ("GPU", "works", 5)] * 2)
    assert spans == [
        ("Python", "asks", 0, 2),
        ("GPU", "works", 2, 7),
        ("Python", "asks", 2, 4),
        ("GPU", "works", 7, 12),
    ]
    assert total == 12


def test_python_that_waits_asks_later():
    step = [("Python", "asks", 2), ("GPU", "works", 5), "waits"]
    spans, total = lay_out(step * 2)
    assert [span for span in spans if span[1] == "waits"] == [
        ("Python", "waits", 2, 7),
        ("Python", "waits", 9, 14),
    ]
    assert total == 14


def test_a_gpu_that_is_done_waits_for_python():
    spans, total = lay_out([("Python", "asks", 4), ("GPU", "works", 1)] * 2)
    assert [span for span in spans if span[0] == "GPU"] == [
        ("GPU", "works", 4, 5),
        ("GPU", "works", 8, 9),
    ]
    assert total == 9
