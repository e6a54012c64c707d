"""What is recorded, as plain data, and pure functions on it. Every other package uses this vocabulary.

Frozen records, keys and phases of steps, the recorded form of values and exceptions, policies and options. Left out:
I/O, SQL and Strands.
"""
