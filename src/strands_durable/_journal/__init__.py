"""The record of executions as those see it who run them: the port, and what every store shares.

Who owns an execution and who is alive, the conversation as an append-only log, results read back from the record. Left out:
SQL, Strands, and what a recorded call or step means for the one that runs now.
"""
