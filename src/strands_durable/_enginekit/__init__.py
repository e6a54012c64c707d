"""For engines that keep the journal themselves: a replica of an execution's rows, its driver, payload storage and compaction.

Left out: any engine. What is here knows no Temporal and no other service.
"""
