"""The record of executions, and who may write to it: what every store shares, with SQLite behind it.

Owners and leases, the conversation as an append-only log, results read back from the record, and following it from
outside. Left out: Strands, and what a recorded call or step means for the one that runs now.
"""
