"""Every contact with Strands beyond its public surface: the only room that knows its private names.

Accessors of agents and orchestrators, watchers, patches, session managers, segments and fingerprints. Left out: what
a call or a step means for an execution, and the journal.
"""
