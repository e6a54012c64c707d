"""Notifications on Temporal: the workflow that has one delivered, and the activity that calls the hooks."""
