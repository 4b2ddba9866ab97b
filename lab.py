"""Open the course in JupyterLab: python3 lab.py. The first time it makes .venv and installs what is needed."""

import sys
from pathlib import Path

# with PYTHONSAFEPATH, another copy of the course would run
sys.path.insert(0, str(Path(__file__).resolve().parent))

from course.__main__ import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["lab", *sys.argv[1:]]))
