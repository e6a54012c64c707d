"""The journal in a SQLite file: its tables, every SQL statement about calls and steps, and the file itself.

Opening and sharing the file, checksums, large bytes, change notification, listing and removal. Left out: Strands, and
every decision about an execution.
"""
