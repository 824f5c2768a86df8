"""A cluster configuration for ReFrame that needs nothing installed."""

site_configuration = {
    "systems": [
        {
            "name": "cluster",
            "hostnames": [".*"],
            "modules_system": "nomod",
            "partitions": [
                {
                    "name": "partition",
                    "scheduler": "slurm",
                    "launcher": "srun",
                    "environs": ["builtin"],
                    "max_jobs": 100_000,
                    "sched_options": {"use_nodes_option": True},
                }
            ],
        }
    ],
    "environments": [{"name": "builtin", "cc": "cc"}],
    "logging": [{"handlers": [], "handlers_perflog": []}],
}
