"""For engines that run a function again from its beginning, and return what its operations have recorded.

`port` is what such an engine implements. `inputs`, `run`, `questions`, `reports` and `segments` run an execution on it,
`history`, `answers` and `backend` serve its clients, which reply to callbacks instead of appending to a log. Left out: any
engine.
"""
