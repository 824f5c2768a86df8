"""A cluster -> a survey of its resources, and a site file for it."""
