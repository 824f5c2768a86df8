"""The half that runs inside the job, in the framework's own Python (3.7 and newer)."""
