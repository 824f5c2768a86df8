"""A cluster -> what it has, and a site file that says so."""
