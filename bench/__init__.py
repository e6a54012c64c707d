"""Numbers, side by side on one machine: see bench/README.md."""
