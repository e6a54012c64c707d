"""What is recorded, as plain data, and pure functions on it: the vocabulary of every other room.

Frozen records, keys and phases of steps, the recorded form of values and exceptions, policies and options. Left out:
I/O, SQL and Strands; nothing here opens, reads or runs anything.
"""
