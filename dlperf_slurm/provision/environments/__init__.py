"""The frameworks' managed environments: created from pinned requirements, and checked."""
