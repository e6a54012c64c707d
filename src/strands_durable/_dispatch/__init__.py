"""Queued executions and the workers that run them: the backend and handle ports, the registry of agents, requests and workers.

Left out: engines, which implement the ports in `backends`, and what a run itself does (`_execution`).
"""
