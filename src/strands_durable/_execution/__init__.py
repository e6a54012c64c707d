"""Running an execution: entering it, deciding what the record means, and replaying or running each step.

Admission, resolving a call's address, invocations of agents and orchestrators, stages, tool runs, retries, and steps in
doubt. Left out: how calls and steps are committed (`_calls`), and queued executions (`_dispatch`).
"""
