"""Which packages there are: all of helpers and course, and the scripts that pages launch, under a name of their own."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["helpers*", "course*"]), "course.lesson_scripts"],
    package_dir={"course.lesson_scripts": "notebooks/scripts"},
)
