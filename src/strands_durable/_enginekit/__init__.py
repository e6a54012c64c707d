"""For engines that store the journal themselves: a replica of an execution's rows, its driver, payload storage and compaction.

Leaves out every engine: nothing here depends on Temporal or any other service.
"""
