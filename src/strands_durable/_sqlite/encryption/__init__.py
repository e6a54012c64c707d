"""Encryption at rest: which cells of a store are encrypted, with which keys, and how a store gets other keys.

Left out: the ciphers themselves (`_records.cipher`), and where rows are written and read (`connection`), which calls this.
"""
