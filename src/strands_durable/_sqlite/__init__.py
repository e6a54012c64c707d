"""The journal in a SQLite file: its tables, every SQL statement about calls and steps, leases, and the file itself.

Opening and sharing the file, checksums, large bytes, change notification, listing, following and removal. Left out: Strands,
and every decision about an execution.
"""
