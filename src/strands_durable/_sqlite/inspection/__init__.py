"""A store as people look at it: lists, sums, details and open questions. Reads rows, and writes none.

Left out: finding and opening the file, which is for `catalog`. Knows no Strands.
"""
