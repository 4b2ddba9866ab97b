"""Open the course in JupyterLab: python3 lab.py. The first time it makes .venv and installs what is needed."""

import sys
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parent)
)  # with PYTHONSAFEPATH, another copy would run

from tools.__main__ import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["lab", *sys.argv[1:]]))
