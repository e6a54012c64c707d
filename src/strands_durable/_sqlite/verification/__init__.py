"""Checking a store from end to end: pages, tables, every row, every reference, every status. Reads only.

Left out: repairing. Columns of a lease (owner, fence, beat, times) have no checksum, because each heartbeat changes them; nor
has the version of a head, which only a fork looks at. Of these, only the kind of value is checked.
"""

from .verifier import verified

__all__ = ["verified"]
