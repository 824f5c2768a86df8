"""python -m ...tensorflow.server PARENT_ID TASK THREADS CLUSTER: a parameter server.

For TensorFlow 1 and 2. It serves from host memory until its parent process ends; CLUSTER is JSON.
"""

import json
import sys

from dlperf_slurm.worker.processes import end_with_parent


def serve(task: int, threads: int, cluster: str) -> None:
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads,
        inter_op_parallelism_threads=threads,
        device_count={"GPU": 0},
    )
    spec = tf.train.ClusterSpec(json.loads(cluster))
    tf.distribute.Server(spec, "ps", task, protocol="grpc", config=config).join()


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    serve(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
