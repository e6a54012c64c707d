"""For engines that keep the journal themselves: the log as their port, and everything that they share around it.

`replica` is the execution as data, made of change sets. `driver`, `session` and `agent_loop` run it. `log`, `handle`, `backend`
serve clients. `epochs` and `outbox` are for engines without a fence at each append, `payloads` and `compaction` for limits.
`encryption` seals what a log keeps.
`operations` is for engines that run a function again and return what its operations have recorded.
Left out: any engine. What is here knows no Temporal and no other service.
"""
