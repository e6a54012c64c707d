"""Where Strands calls us: the `Durability` plugin, and how it attaches to agents and orchestrators.

Left out: everything that happens once a call is durable, which is `_execution`.
"""
