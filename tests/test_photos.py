"""The running project: photos of the learner's own, the samples, and the network that looks at them."""

import pytest
import torch
from PIL import Image

from course import photos
from course.lesson03 import figures as figures03
from course.lesson04 import figures as figures04


def save(folder, count, size=(300, 200), suffix="jpg"):
    folder.mkdir(parents=True)
    for i in range(count):
        Image.new("RGB", size, (40 * i % 255, 90, 20)).save(folder / f"{i}.{suffix}")


def test_the_network_names_what_the_samples_show():
    network, names = photos.pretrained(), photos.imagenet_names()
    images = torch.stack([photos.sample(name) for name in photos.SAMPLES])
    with torch.inference_mode():
        best = network(photos.prepare(images)).argmax(1)
    assert [names[i] for i in best] == ["espresso", "tripod", "Egyptian cat"]


def test_without_photos_of_their_own_learners_get_three_stand_ins_and_no_test_pixel_is_trained_on():
    train, test = photos.load("no such folder")
    assert train.classes == test.classes == ("galaxies", "retina", "tissue")
    assert train.images.shape == (72, 3, 224, 224) and train.images.dtype == torch.uint8
    assert (
        train.labels.bincount().tolist() == [24] * 3 and test.labels.bincount().tolist() == [8] * 3
    )
    assert photos.pretrained(3).eval()(photos.prepare(test.images[:1])).shape == (1, 3)


def test_inverted_colors_take_the_place_of_half_the_test_patches_and_of_nothing_else():
    plain, other = (photos.load("no such folder", inverted=way) for way in (False, True))
    assert torch.equal(plain[0].images, other[0].images)
    changed = (plain[1].images != other[1].images).flatten(1).any(1)
    assert changed.reshape(3, 8).tolist() == [[False] * 4 + [True] * 4] * 3
    assert other[1].inverted == set(changed.nonzero()[:, 0].tolist()) and not plain[1].inverted


def test_folders_of_photos_become_classes_split_alike_each_time_and_a_tiny_test_is_called_one(
    tmp_path, capsys
):
    save(tmp_path / "p/cats", 10)
    save(tmp_path / "p/dogs", 5, suffix="png")
    train, test = photos.load(tmp_path / "p")
    assert train.classes == ("cats", "dogs")
    assert (train.labels.bincount().tolist(), test.labels.bincount().tolist()) == ([7, 3], [3, 2])
    assert capsys.readouterr().out == "test images: 5, too few to judge\n"
    assert torch.equal(train.images, photos.load(tmp_path / "p")[0].images)


def test_percentages_that_are_said_to_add_up_to_100_do():
    assert figures04._percents(torch.tensor([0.626, 0.196, 0.178])) == [62, 20, 18]
    assert sum(figures04._percents(torch.full((7,), 1 / 7))) == 100


def test_a_head_that_learned_wrong_labels_is_told_by_the_test_alone():
    scores = [[0.5, 1.0], [0.9, 0.75], [1.0, 0.875]]  # right in training and in the test
    told = figures04.compare_scores(scores, range(72), range(24))
    assert told["actual"] == "all of them" and "72 of 72 get their label" in told["because"]
    assert "24 of 24 were right in epoch 1, and 21 at the end" in told["because"]
    assert "100% get their label, yet the test ends at 88%" in told["figure"][1]
    modest = figures04.compare_scores([[0.6, 1.0]], range(72), range(24))
    assert modest["actual"] == "about two thirds"


def test_a_photo_from_a_phone_is_turned_upright(tmp_path):
    picture = Image.new("RGB", (200, 100))
    picture.paste((255, 255, 255), (0, 0, 100, 100))  # the left half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: left becomes top
    picture.save(tmp_path / "phone.jpg", exif=exif)
    upright = photos.read(tmp_path / "phone.jpg").float().mean((0, 2))
    assert upright[:90].min() > 200 and upright[-90:].max() < 50


def test_what_does_not_fit_is_said_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.jpg"):
        photos.read(tmp_path / "nothing.jpg")
    (tmp_path / "text.jpg").write_text("no photo")
    with pytest.raises(ValueError, match="text.jpg can't be read as a photo"):
        photos.read(tmp_path / "text.jpg")
    save(tmp_path / "one/cats", 5)
    with pytest.raises(ValueError, match="two or more classes; found cats"):
        photos.load(tmp_path / "one")
    save(tmp_path / "one/dogs", 3)
    with pytest.raises(ValueError, match="dogs has 3 photos; a class needs at least four"):
        photos.load(tmp_path / "one")
    with pytest.raises(ValueError, match="name is 'tea'; it takes one of coffee"):
        photos.sample("tea")


def test_what_the_network_sees_can_be_saved_for_a_friend(tmp_path, capsys):
    picture = tmp_path / "seen.png"
    figures03.seen(photos.pretrained(), photos.sample("coffee"), file=picture)
    assert "espresso" in capsys.readouterr().out
    assert Image.open(picture).width > Image.open(picture).height
