"""The worker of the demo in a file: a script that is run again after a crash."""

from __future__ import annotations

import sys
from pathlib import Path

from .file import work

work(Path(sys.argv[1]))
