"""A call that runs now: what it carries, the steps it is made of, and every moment at which they are committed.

Calls of agents and of orchestrators, their model steps, tool steps and side effects, the head, metrics, and what this
process knows of an execution. Left out: who may start a call and what its recorded predecessor means, which is
`_execution`.
"""
