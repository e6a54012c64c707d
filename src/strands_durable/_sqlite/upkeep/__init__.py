"""A store as a whole, over time: copies of it, how long its executions are kept, marks that keep one, and removing one.

Left out: checking a store (`verification`).
"""
