"""``python -m bench.temporal``: our Temporal backend and the official plugin, side by side on one dev server."""
