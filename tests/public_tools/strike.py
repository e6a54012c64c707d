"""Kills a run in the middle of an effect: called by what has the effect, a command or a server, with the run's folder.

The file ``strike`` of the folder has the run's process and the number of the effect that it dies of. Without imports that take
seconds: tools start it for every call.
"""

from __future__ import annotations

import os
import signal
import sys

NOTES = ("arrivals", "strike")


def strike(folder: str) -> None:
    """Note an effect, and kill the run if this is the one that it dies of."""
    arrivals, deadly = (os.path.join(folder, name) for name in NOTES)
    with open(arrivals, "a+") as file:
        file.write("here\n")
        file.seek(0)
        count = len(file.readlines())
    if not os.path.exists(deadly):
        return
    with open(deadly) as file:
        process, number = map(int, file.read().split())
    if count == number:
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    strike(sys.argv[1])
