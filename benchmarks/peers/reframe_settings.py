"""A cluster for ReFrame, of which nothing is asked."""

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
