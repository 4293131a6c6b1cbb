"""Output for people: progress, tables, traces and pages."""
