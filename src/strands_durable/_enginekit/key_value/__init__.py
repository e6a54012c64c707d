"""For engines on a key-value store with compare-and-swap: the log of executions, maps that many processes change, heartbeats.

Left out: any store. `store` is the port.
"""
