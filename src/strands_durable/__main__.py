"""``python -m strands_durable``: the command line, run by this Python."""

from ._cli import main

if __name__ == "__main__":
    main(prog_name="strands-durable")
