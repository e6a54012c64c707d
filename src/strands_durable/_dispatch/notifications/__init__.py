"""Hooks that are called when an execution waits, fails or ends, webhooks among them, and what delivers from a SQLite store."""
