"""A running call: what it carries, its steps, and every point at which they are committed.

Calls of agents and of orchestrators, their model steps, tool steps and side effects, the head, metrics, and what this
process knows about an execution. Left out: who may start a call and what its recorded predecessor means (`_execution`).
"""
