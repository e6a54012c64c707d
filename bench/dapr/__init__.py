"""Bench of the Dapr engine, beside diagrid's Strands runner, on real sidecars of Dapr on this machine."""
