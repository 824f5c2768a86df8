"""tensorpack's trainers, with the models' definitions: runs in the environment of tensorflow1."""
