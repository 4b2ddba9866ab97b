"""Open the course in JupyterLab: python3 lab.py. The first time it makes .venv and installs what is needed."""

import sys

from course.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["lab", *sys.argv[1:]]))
