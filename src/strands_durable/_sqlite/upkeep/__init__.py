"""A store as a whole, over time: copies of it, how long its executions are kept, and marks that keep one.

Left out: removing one execution (`removal`), and checking a store (`verification`).
"""
