"""A file of a worker that cannot be imported by two processes at a time, as one that takes a fixed port when it is imported.

What it does the second time says the environment: it fails, or it never ends. It also says which Python the worker starts.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from strands_durable._dispatch import quarantine
from tests.crash.crew import scripted

__all__ = ["scripted"]

if "START_SECONDS" in os.environ:
    quarantine.START_SECONDS = float(os.environ["START_SECONDS"])
sys.executable = os.environ.get("PYTHON", sys.executable)
if "--trial" in sys.argv:
    while "HANG" in os.environ:
        time.sleep(0.1)
server = socket.create_server(("127.0.0.1", int(os.environ["PORT"])))
