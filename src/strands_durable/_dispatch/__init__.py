"""Queued executions and the workers that run them: the backend and handle ports, the agent registry, requests and workers.

Left out: the engines, which implement the ports in `backends`, and the run of an execution itself (`_execution`).
"""
