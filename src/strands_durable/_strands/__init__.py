"""All access to Strands beyond its public API: the only package that uses its private names.

Accessors of agents and orchestrators, watchers, patches, session managers, segments and fingerprints. Left out: what
a call or a step means for an execution, and the journal.
"""
